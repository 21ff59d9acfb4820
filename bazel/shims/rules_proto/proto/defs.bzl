proto_lang_toolchain = native.proto_lang_toolchain
proto_library = native.proto_library
