"""What a server tells of its own services, by gRPC's reflection (v1alpha)."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# As much of it as is asked here.
REFLECTION = descriptor_pb2.FileDescriptorProto(
    name="reflection.proto", package="reflected", syntax="proto3",
    message_type=[
        {"name": "Request", "field": [
            {"name": "file_containing_symbol", "number": 4, "type": 9,
             "label": 1},
            {"name": "list_services", "number": 7, "type": 9, "label": 1}]},
        {"name": "Files", "field": [
            {"name": "files", "number": 1, "type": 12, "label": 3}]},
        {"name": "Service", "field": [
            {"name": "name", "number": 1, "type": 9, "label": 1}]},
        {"name": "Services", "field": [
            {"name": "services", "number": 1, "type": 11, "label": 3,
             "type_name": ".reflected.Service"}]},
        {"name": "Response", "field": [
            {"name": "files", "number": 4, "type": 11, "label": 1,
             "type_name": ".reflected.Files"},
            {"name": "services", "number": 6, "type": 11, "label": 1,
             "type_name": ".reflected.Services"}]}])
METHOD = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


def ask(channel, **question):
    own = descriptor_pool.DescriptorPool()
    own.Add(REFLECTION)
    request, response = (message_factory.GetMessageClass(
        own.FindMessageTypeByName(f"reflected.{name}"))
        for name in ("Request", "Response"))
    call = channel.stream_stream(
        METHOD, request_serializer=request.SerializeToString,
        response_deserializer=response.FromString)
    return next(iter(call(iter([request(**question)]), timeout=30)))


def service_names(channel):
    return [service.name for service in
            ask(channel, list_services="*").services.services]


def services(channel, names):
    """Their descriptors, with all that their files import."""
    files = {}
    for name in names:
        for data in ask(channel, file_containing_symbol=name).files.files:
            file = descriptor_pb2.FileDescriptorProto.FromString(data)
            files[file.name] = file
    pool = descriptor_pool.DescriptorPool()
    added = set()
    while len(added) < len(files):
        before = len(added)
        for file in files.values():
            if file.name not in added and added.issuperset(file.dependency):
                pool.Add(file)
                added.add(file.name)
        assert len(added) > before, "imports that are not there"
    return [pool.FindServiceByName(name) for name in names]
