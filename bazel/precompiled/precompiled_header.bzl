"""precompiled_header: one header, parsed once for all files that begin with it.

GCC takes the .gch file beside an included header where it was made by the same
compiler with the same flags and macros, and reads the header itself otherwise.
Clang takes it, too, or fails.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

# The generated headers of a cache are older or newer than they were.
_CLANG_COPTS = [
    "-Xclang",
    "-fno-pch-timestamp",
    "-fpch-instantiate-templates",
]

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context

    # Under another name: GCC would find the source, which has no .gch.
    header = ctx.actions.declare_file(ctx.label.name + ".pch.h")
    ctx.actions.symlink(output = header, target_file = ctx.file.src)
    gch = ctx.actions.declare_file(ctx.label.name + ".pch.h.gch")
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = gch.path,
        use_pic = True,
        # A .gch knows what it was made of where dependencies were asked for.
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts +
                             ctx.attr.copts +
                             (_CLANG_COPTS if ctx.attr.clang else []) +
                             ["-x", "c++-header", "-MD", "-MF", "/dev/null"],
        include_directories = context.includes,
        quote_include_directories = depset(["."], transitive = [context.quote_includes]),
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset(
            [header] + ctx.files.textual,
            transitive = [context.headers, toolchain.all_files],
        ),
        outputs = [gch],
        mnemonic = "CppPrecompile",
        # Clang's has the absolute paths of what it was made of.
        execution_requirements = {"no-cache": "1"} if ctx.attr.clang else {},
        progress_message = "Precompiling " + ctx.file.src.short_path,
    )
    own = cc_common.create_compilation_context(
        headers = depset([header, gch] + ctx.files.textual),
    )
    return [
        DefaultInfo(files = depset([header, gch])),
        # Headers and macros only: who includes this needs not link them.
        cc_common.merge_cc_infos(cc_infos = [
            CcInfo(compilation_context = own),
            CcInfo(compilation_context = context),
        ]),
    ]

_precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "src": attr.label(allow_single_file = [".h"], mandatory = True),
        "textual": attr.label_list(
            allow_files = [".h"],
            doc = "Headers of this folder that `src` includes.",
        ),
        "copts": attr.string_list(doc = "As its users have them: -O1."),
        "deps": attr.label_list(providers = [CcInfo]),
        "clang": attr.bool(doc = "The compiler is clang."),
        "_cc_toolchain": attr.label(
            default = Label("@bazel_tools//tools/cpp:current_cc_toolchain"),
        ),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def precompiled_header(name, **kwargs):
    _precompiled_header(
        name = name,
        clang = select({"//bazel:clang": True, "//conditions:default": False}),
        **kwargs
    )
