"""Repositories over the libraries installed on the machine (no downloads).

The libraries live in the compiler's own search path, so a wrapped library is a
cc_library with link options only; a fetch costs milliseconds.  pkg-config is
not used: on grpc++ it takes 0.9 s a call.
"""

_LIB_DIRS = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
]

# Headers that differ by processor lie one folder deeper.
_HEADER_DIRS = [
    "/usr/include",
    "/usr/include/x86_64-linux-gnu",
    "/usr/include/aarch64-linux-gnu",
]

def _has_header(ctx, header):
    return any([ctx.path("%s/%s" % (d, header)).exists for d in _HEADER_DIRS])

def _lib_dir(ctx, lib):
    for d in _LIB_DIRS:
        for ext in [".so", ".a"]:
            if ctx.path("%s/lib%s%s" % (d, lib, ext)).exists:
                return d
    return None

def _system_repository_impl(ctx):
    out = ['package(default_visibility = ["//visibility:public"])', ""]
    for h in ctx.attr.headers:
        if not _has_header(ctx, h):
            fail("@%s: /usr/include/%s is missing; apt-get install %s" % (ctx.name, h, ctx.attr.apt))
    for t in ctx.attr.tools:
        path = ctx.which(t)
        if not path:
            fail("@%s: no %s in PATH; apt-get install %s" % (ctx.name, t, ctx.attr.apt))
        ctx.symlink(path, "bin/" + t)
    if ctx.attr.tools:
        out.append("exports_files(%r)" % ["bin/" + t for t in ctx.attr.tools])
    for name, libs in ctx.attr.libs.items():
        for lib in libs:
            if not _lib_dir(ctx, lib):
                fail("@%s: lib%s is missing; apt-get install %s" % (ctx.name, lib, ctx.attr.apt))
        dynamic = ["-l" + l for l in libs]
        static = []
        for l in libs:
            a = "%s/lib%s.a" % (_lib_dir(ctx, l), l)
            whole = ctx.path(a).exists and not ctx.attr.always_dynamic
            static.append("-l:lib%s.a" % l if whole else "-l" + l)
        out += [
            "cc_library(",
            "    name = %r," % name,
            "    defines = %r," % ctx.attr.defines,
            '    linkopts = select({"@%s//bazel:static_deps": %r, "//conditions:default": %r}),' % (ctx.attr.main, static, dynamic),
            "    deps = %r," % ctx.attr.deps.get(name, []),
            ")",
        ]
    ctx.file("BUILD.bazel", "\n".join(out) + "\n")

system_repository = repository_rule(
    implementation = _system_repository_impl,
    attrs = {
        "apt": attr.string(mandatory = True),
        "main": attr.string(default = "roundhouse"),
        "headers": attr.string_list(),
        "libs": attr.string_list_dict(),
        # The static library needs others that Debian has only as shared ones.
        "always_dynamic": attr.bool(),
        "deps": attr.string_list_dict(),
        "defines": attr.string_list(),
        "tools": attr.string_list(),
    },
    environ = ["PATH"],
    configure = True,
)

def _absl_repository_impl(ctx):
    if not ctx.path("/usr/include/absl/base/config.h").exists:
        fail("Abseil is missing; apt-get install libabsl-dev")
    d = _lib_dir(ctx, "absl_base")
    names = sorted([p.basename[3:-3] for p in ctx.path(d).readdir() if p.basename.startswith("libabsl_") and p.basename.endswith(".so")])
    static = ["-Wl,--start-group"] + ["-l:lib%s.a" % n for n in names] + ["-Wl,--end-group"]
    dynamic = ["-Wl,--push-state,--as-needed"] + ["-l" + n for n in names] + ["-Wl,--pop-state"]
    has_log = ctx.path("/usr/include/absl/log/log.h").exists
    ctx.file("BUILD.bazel", """
package(default_visibility = ["//visibility:public"])
cc_library(
    name = "absl",
    defines = %r,
    linkopts = select({"@%s//bazel:static_deps": %r, "//conditions:default": %r}),
)
""" % (["ROUNDHOUSE_HAVE_ABSL_LOG=%d" % int(has_log)], ctx.attr.main, static, dynamic))

absl_repository = repository_rule(
    implementation = _absl_repository_impl,
    attrs = {"main": attr.string(default = "roundhouse")},
    configure = True,
)

def _wheels(ctx):
    """The folder that deploy/install-deps fills with the LibTorch and NVIDIA wheels."""
    env = ctx.os.environ
    cache = env.get("XDG_CACHE_HOME", "") or env.get("HOME", "") + "/.cache"
    return env.get("ROUNDHOUSE_WHEELS", "") or cache + "/roundhouse/wheels"

def _torch_repository_impl(ctx):
    home = _wheels(ctx) + "/torch"
    if not ctx.path(home + "/lib/libtorch_cpu.so").exists:
        fail("LibTorch is missing at %s; run deploy/install-deps" % home)
    ctx.symlink(home + "/include", "include")
    link = ["-L%s/lib" % home, "-Wl,-rpath,%s/lib" % home, "-ltorch_cpu", "-lc10"]  # never -ltorch

    # No symbol of ours asks for them: their operators register themselves.
    cuda = ["-Wl,--push-state,--no-as-needed", "-ltorch_cuda", "-lc10_cuda", "-Wl,--pop-state"]
    ctx.file("BUILD.bazel", """
package(default_visibility = ["//visibility:public"])
cc_library(
    name = "torch",
    hdrs = glob(["include/**/*.h", "include/**/*.hpp", "include/**/*.cuh", "include/**/*.inl"]),
    includes = ["include", "include/torch/csrc/api/include"],
    linkopts = %r,
)
cc_library(name = "torch_cuda", linkopts = %r, deps = [":torch", "@local_cuda//:cudart"])
""" % (link, cuda))

torch_repository = repository_rule(
    implementation = _torch_repository_impl,
    environ = ["ROUNDHOUSE_WHEELS", "XDG_CACHE_HOME", "HOME"],
    configure = True,
)

def _cuda_repository_impl(ctx):
    # Compiler, headers and libraries all come from the wheels, whatever toolkit the
    # machine has: a process has one cudart and one NCCL, those LibTorch was built with.
    nvidia = _wheels(ctx) + "/nvidia"
    home = nvidia + "/cu13"
    out = ['package(default_visibility = ["//visibility:public"])', 'exports_files(["nvcc_version.txt"])']
    version = ""
    if ctx.os.environ.get("ROUNDHOUSE_CUDA") == "on":
        # A failed fetch is tried again by the next build, when the wheels may be there.
        for path in [home + "/bin/nvcc", nvidia + "/nccl/lib/libnccl.so.2"]:
            if not ctx.path(path).exists:
                fail("CUDA is missing at %s; run deploy/install-deps --cuda" % path)
        version = ctx.execute([home + "/bin/nvcc", "--version"]).stdout
        ctx.symlink(nvidia + "/cu13/include", "include")
        ctx.symlink(nvidia + "/nccl/include", "nccl")
        link = '["-L{n}/{d}/lib", "-Wl,-rpath,{n}/{d}/lib", "-l:{l}"]'
        out += [
            'cc_library(name = "headers", hdrs = glob(["include/**", "nccl/**"]), includes = ["include", "nccl"])',
            'cc_library(name = "cudart", deps = [":headers"], linkopts = %s)' % link.format(n = nvidia, d = "cu13", l = "libcudart.so.13"),
            'cc_library(name = "nccl", deps = [":headers"], linkopts = %s)' % link.format(n = nvidia, d = "nccl", l = "libnccl.so.2"),
        ]
    else:
        # Without --config=cuda labels must exist; nothing is built with them.
        out += ['cc_library(name = "%s")' % n for n in ["headers", "cudart", "nccl"]]
    ctx.file("nvcc_version.txt", version)
    ctx.file("BUILD.bazel", "\n".join(out) + "\n")
    ctx.file("defs.bzl", "CUDA_HOME = %r\n" % home)

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    environ = ["ROUNDHOUSE_CUDA", "ROUNDHOUSE_WHEELS", "XDG_CACHE_HOME", "HOME"],
    configure = True,
)
