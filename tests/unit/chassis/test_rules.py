from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

import drover
from chassis import rules
from chassis.errors import DroverError, Reason
from drover.api.v1 import annotations_pb2, metadata_pb2
from drover.environment.v1 import environment_service_pb2
from drover.event.v1 import content_pb2, event_pb2, user_event_pb2
from drover.session.v1 import session_service_pb2

RULES = "(drover.api.v1.rules)"


def broken(message) -> str:
    with pytest.raises(DroverError) as caught:
        rules.check(message)
    assert caught.value.reason is Reason.INVALID_ARGUMENT
    return caught.value.message


@pytest.fixture
def field(compile_proto):
    """Makes a message type with one field called `f`."""
    return lambda declaration, extra="": compile_proto(f"message M {{ {declaration} }} {extra}")[
        "M"
    ]


def user_message(*texts: str) -> event_pb2.Event:
    blocks = [content_pb2.ContentBlock(text=content_pb2.TextBlock(text=text)) for text in texts]
    return event_pb2.Event(user_message=user_event_pb2.UserMessage(content=blocks))


def emit(*events: event_pb2.Event) -> session_service_pb2.EmitEventsRequest:
    return session_service_pb2.EmitEventsRequest(session_id="sesn_1", events=events)


def test_message_within_its_limits_passes():
    rules.check(emit(user_message("hello"), user_message("again", "and again")))


def test_path_skips_the_variant_of_a_union_as_json_does():
    assert broken(emit(user_message("a"), user_message())).startswith("events.1.content: ")
    assert broken(emit(user_message("a", ""))) == "events.0.content.1.text: a value is required"


def test_union_without_a_variant_misses_its_type():
    assert broken(emit(event_pb2.Event())) == "events.0.type: a value is required"


def test_what_was_checked_when_it_was_first_taken_is_not_checked_again(field):
    one = "message N { string s = 1 [(drover.api.v1.rules).required = true]; }"
    message = field(f"N f = 1 [{RULES}.unchecked = true];", one)()
    message.f.SetInParent()
    rules.check(message)


def kinds(field: FieldDescriptor) -> set[str]:
    """The names of the rules that mean something for a field."""
    if field.is_repeated:
        is_map = field.message_type and field.message_type.GetOptions().map_entry
        return {"required", "map" if is_map else "repeated"}
    union = field.containing_oneof and len(field.containing_oneof.fields) > 1
    own = {
        FieldDescriptor.TYPE_STRING: "string",
        FieldDescriptor.TYPE_ENUM: "enum",
        FieldDescriptor.TYPE_INT32: "int64",
        FieldDescriptor.TYPE_INT64: "int64",
        FieldDescriptor.TYPE_MESSAGE: "unchecked",
    }.get(field.type, "")
    return {own} if union else {own, "required"}


def contract_messages():
    root = Path(next(iter(drover.__path__)))
    for path in sorted(root.rglob("*_pb2.py")):
        module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        yield from importlib.import_module(module).DESCRIPTOR.message_types_by_name.values()


def test_no_rule_of_the_contract_is_written_in_vain():
    ignored = [
        f"{field.full_name}: {rule.name}"
        for message in contract_messages()
        for field in message.fields
        for rule, _ in field.GetOptions().Extensions[annotations_pb2.rules].ListFields()
        if rule.name not in kinds(field)
    ]
    assert ignored == []


def test_required_means_present_or_not_zero(field):
    plain = field(f"string f = 1 [{RULES}.required = true];")
    assert broken(plain()) == "f: a value is required"
    rules.check(plain(f="x"))
    optional = field(f"optional string f = 1 [{RULES}.required = true];")
    assert broken(optional()) == "f: a value is required"
    rules.check(optional(f=""))
    nested = field(f"N f = 1 [{RULES}.required = true];", "message N {}")
    assert broken(nested()) == "f: a value is required"
    rules.check(nested(f={}))
    many = field(f"repeated string f = 1 [{RULES}.required = true];")
    assert broken(many()) == "f: at least 1 item is required"
    pairs = field(f"map<string, string> f = 1 [{RULES}.required = true];")
    assert broken(pairs()) == "f: at least 1 pair is required"


def test_unset_optional_field_is_not_held_to_its_limits(field):
    optional = field(f"optional string f = 1 [{RULES}.string.min_len = 2];")
    rules.check(optional())
    assert broken(optional(f="")) == "f: at least 2 characters are required"
    plain = field(f"string f = 1 [{RULES}.string.min_len = 1];")
    assert broken(plain()) == "f: at least 1 character is required"


def test_string_lengths_count_code_points_or_bytes(field):
    short = field(f"string f = 1 [{RULES}.string.max_len = 3];")
    rules.check(short(f="日本語"))
    assert broken(short(f="日本語!")) == "f: at most 3 characters are allowed"
    small = field(f"string f = 1 [{RULES}.string.max_bytes = 3];")
    assert broken(small(f="日本")) == "f: at most 3 bytes are allowed"


def test_pattern_is_read_as_re2_reads_it(field):
    name = field(f'string f = 1 [{RULES}.string.pattern = "^[a-z]\\\\w*$"];')
    rules.check(name(f="a1_"))
    for wrong in ("1", "a\n", "aé"):
        assert broken(name(f=wrong)) == r"f: must match ^[a-z]\w*$"
    part = field(f'string f = 1 [{RULES}.string.pattern = "b\\\\$"];')
    rules.check(part(f="ab$c"))
    said = field(f'string f = 1 [{RULES}.string = {{pattern: "/$" message: "must end with /"}}];')
    assert broken(said(f="a")) == "f: must end with /"


@pytest.mark.parametrize("name", ["id", "session_id", "call_ids"])
def test_no_id_holds_the_character_zero(compile_proto, name):
    repeated = "repeated " if name.endswith("s") else ""
    message = compile_proto(f"message M {{ {repeated}string {name} = 1; string idea = 2; }}")["M"]
    value = ["a\0"] if repeated else "a\0"
    assert broken(message(**{name: value})).endswith("must not contain the character U+0000")
    rules.check(message(idea="a\0"))


@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_name_that_is_looked_for_holds_no_character_zero(kind):
    request = getattr(environment_service_pb2, f"{kind}EnvironmentRequest")(name="a\0b")
    if kind == "Update":
        request.environment_id = "env_1"
    assert broken(request) == "name: must not contain the character U+0000"


def test_string_of_a_set(field):
    order = field(f'string f = 1 [{RULES}.string = {{in: "asc" in: "desc"}}];')
    rules.check(order(f="desc"))
    assert broken(order(f="up")) == "f: must be one of asc, desc"


def test_json_object_text(field):
    schema = field(f"string f = 1 [{RULES}.string.json_object = true];")
    rules.check(schema(f='{"a": 18446744073709551616}'))
    for wrong in ("", "[]", "{", '{"a": NaN}', "[" * 100_000):
        assert broken(schema(f=wrong)) == "f: must be a JSON object"


@pytest.mark.parametrize(
    ("limits", "inside", "outside", "text"),
    [
        ("{gte: 1 lte: 100}", (1, 100), (0,), "must be at least 1"),
        ("{gte: 1 lte: 100}", (1, 100), (101,), "must be at most 100"),
        ("{gte: 0}", (0, 2**40), (-1,), "must be at least 0"),
        ("{lte: -1}", (-1, -5), (0,), "must be at most -1"),
    ],
)
def test_integer_ranges_include_their_ends(field, limits, inside, outside, text):
    number = field(f"int64 f = 1 [{RULES}.int64 = {limits}];")
    for value in inside:
        rules.check(number(f=value))
    for value in outside:
        assert broken(number(f=value)) == f"f: {text}"


def test_list_limits_and_those_of_its_items(field):
    tags = field(
        f"repeated string f = 1 [{RULES}.repeated = "
        "{min_items: 1 max_items: 3 unique: true items: {string: {max_len: 2}}}];"
    )
    rules.check(tags(f=["a", "b"]))
    assert broken(tags()) == "f: at least 1 item is required"
    assert broken(tags(f=["a", "b", "c", "d"])) == "f: at most 3 items are allowed"
    assert broken(tags(f=["a", "b", "a"])) == "f: no item may be there twice"
    assert broken(tags(f=["a", "bcd"])) == "f.1: at most 2 characters are allowed"


def test_map_limits_and_those_of_its_keys_and_values(field):
    metadata = field(
        f"map<string, string> f = 1 [{RULES}.map = "
        "{max_pairs: 2 keys: {string: {max_len: 3}} values: {string: {max_len: 4}}}];"
    )
    rules.check(metadata(f={"a": "b"}))
    assert broken(metadata(f=dict.fromkeys("abc", ""))) == "f: at most 2 pairs are allowed"
    assert broken(metadata(f={"long": ""})) == "f.long: at most 3 characters are allowed"
    assert broken(metadata(f={"a": "value"})) == "f.a: at most 4 characters are allowed"
    assert len(broken(metadata(f={"k" * 10_000: ""}))) < 200


def test_a_metadata_patch_is_named_by_the_keys_of_its_json_object():
    def patched(pairs):
        patch = metadata_pb2.MetadataPatch(set=pairs)
        return broken(session_service_pb2.UpdateSessionRequest(session_id="s", metadata=patch))

    assert patched({"a.b": "v" * 513}) == "metadata.a.b: at most 512 characters are allowed"
    assert patched({"k" * 65: ""}).startswith("metadata.kkk")
    pairs = {str(number): "" for number in range(17)}
    assert patched(pairs) == "metadata: at most 16 pairs are allowed"


def test_map_of_messages_is_checked_below_its_keys(field):
    named = field(
        "map<string, N> f = 1;", f"message N {{ string g = 1 [{RULES}.string.max_len = 1]; }}"
    )
    assert broken(named(f={"k": {"g": "xy"}})) == "f.k.g: at most 1 character is allowed"


def test_enum_value_must_be_one_that_the_enum_names(field):
    colour = field(f"E f = 1 [{RULES}.enum.defined_only = true];", "enum E { A = 0; B = 1; }")
    rules.check(colour(f=1))
    assert broken(colour(f=7)) == "f: the value is not known"


def test_oneof_that_is_no_union_keeps_its_variants_in_the_path(field):
    choice = field(
        "oneof f { option (drover.api.v1.oneof).required = true; "
        f"string a = 1 [{RULES}.string.min_len = 1]; int32 b = 2; }}"
    )
    assert broken(choice()) == "one of a, b is required"
    assert broken(choice(a="")) == "a: at least 1 character is required"
    rules.check(choice(b=0))


def test_query_and_header_names_are_what_the_path_says(field):
    query = field(
        f'int32 f = 1 [(drover.api.v1.json).query = "created_at[gte]", {RULES}.int64.gte = 1];'
    )
    assert broken(query()) == "created_at[gte]: must be at least 1"


def test_recursive_types_are_checked_to_the_bottom(field):
    tree = field(f"string f = 1 [{RULES}.string.max_len = 1]; M child = 2;")
    rules.check(tree(child={"child": {"child": {}}}))
    deep = tree(child={"child": {"f": "xy"}})
    assert broken(deep) == "child.child.f: at most 1 character is allowed"
