"""Templates: what a message's own words make of them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.sender.campaigns.template import (
    MissingValue,
    TemplateError,
    column_key,
    compile_template,
    flatten,
)


def body(*texts: str) -> dict[str, object]:
    parameters = [{"type": "text", "text": text} for text in texts]
    return template({"type": "body", "parameters": parameters})


def template(*components: object) -> dict[str, object]:
    return {"name": "order_ok", "language": "en", "components": list(components)}


def texts(rendered: dict) -> list[str]:
    return [one["text"] for one in rendered["components"][0]["parameters"]]


@pytest.mark.parametrize(
    ("text", "parameters", "sent"),
    [
        ("{{name}}", {"name": "Ana"}, "Ana"),
        ("{{ Name }}", {"name": "Ana"}, "Ana"),
        ("Hi {{name}}, {{name}}!", {"name": "Ana"}, "Hi Ana, Ana!"),
        ("{{a}}{{b}}", {"a": "1", "b": "2"}, "12"),
        ("{{1}}", {"1": 7}, "7"),
        ("{{name}}", {"name": "Line1\nLine2"}, "Line1 Line2"),
        ("{{name}}", {"name": "A\tB"}, "A B"),
        ("{{name}}", {"name": "A     B"}, "A B"),
        ("{{name}}", {"name": "A\r\n\r\nB"}, "A B"),
        ("{{name}}", {"name": "  Ana  "}, "Ana"),
        ("{{a}} {{b}}", {"a": "x ", "b": " y"}, "x y"),
        ("{{name}}", {"name": "1\u00a0000"}, "1\u00a0000"),
        ("Hi {{name}}", {"name": ""}, "Hi"),
        ("two\nlines", {}, "two lines"),
        # Values are data, never templates.
        ("{{name}} {{pin}}", {"name": "{{pin}}", "pin": "9911"}, "{{pin}} 9911"),
        ("{{name}}", {"name": "$1 \\1 %s {name}"}, "$1 \\1 %s {name}"),
    ],
)
def test_text(text, parameters, sent):
    assert texts(compile_template(body(text)).render(parameters)) == [sent]


def test_eleven_positions_keep_their_order():
    compiled = compile_template(body(*(f"{{{{{place}}}}}" for place in range(1, 12))))
    rendered = compiled.render(
        {str(place): letter for place, letter in enumerate("abcdefghijk", 1)}
    )
    assert texts(rendered) == list("abcdefghijk")
    assert list(compiled.columns) == [str(place) for place in range(1, 12)]


@pytest.mark.parametrize(
    "components",
    [
        [],
        [{"type": "body"}],
        [{"type": "body", "parameters": []}],
        [{"type": "header", "parameters": []}, {"type": "body", "parameters": []}],
    ],
)
def test_a_template_without_variables_has_no_components(components):
    rendered = compile_template(template(*components)).render({})
    assert rendered == {"name": "order_ok", "language": {"code": "en"}}


def test_components_are_optional():
    rendered = compile_template({"name": "n", "language": "pt_BR"}).render({})
    assert rendered == {"name": "n", "language": {"code": "pt_BR"}}


def test_everything_else_goes_out_as_it_was_given():
    header = {
        "type": "header",
        "parameters": [{"type": "image", "image": {"link": "https://x/{{id}}"}}],
    }
    named = {"type": "text", "parameter_name": "customer", "text": "{{name}}"}
    button = {
        "type": "button",
        "sub_type": "url",
        "index": 0,
        "parameters": [{"type": "text", "text": "a1"}],
    }
    compiled = compile_template(template(header, {"type": "body", "parameters": [named]}, button))
    first = compiled.render({"id": "7", "name": "Ana"})
    assert first["components"] == [
        {"type": "header", "parameters": [{"type": "image", "image": {"link": "https://x/7"}}]},
        {"type": "body", "parameters": [named | {"text": "Ana"}]},
        button,
    ]
    assert list(compiled.columns) == ["id", "name"]
    second = compiled.render({"id": "8", "name": "Bea"})
    assert second["components"][1]["parameters"][0]["text"] == "Bea"
    assert first["components"][1]["parameters"][0]["text"] == "Ana"


def test_cards_have_components_of_their_own():
    inner = [
        {"type": "header", "parameters": []},
        {"type": "body", "parameters": [{"type": "text", "text": "{{name}}"}]},
    ]
    cards = {"type": "carousel", "cards": [{"card_index": 0, "components": inner}]}
    sent = compile_template(template(cards)).render({"name": "Ana"})["components"][0]["cards"][0]
    assert sent == {
        "card_index": 0,
        "components": [{"type": "body", "parameters": [{"type": "text", "text": "Ana"}]}],
    }


@pytest.mark.parametrize("parameters", [{}, {"other": "x"}, {"name": None}])
def test_a_missing_column_is_named(parameters):
    with pytest.raises(MissingValue, match="name") as raised:
        compile_template(body("Hi {{name}}")).render(parameters)
    assert raised.value.column == "name"


def test_a_text_that_would_be_empty_is_refused():
    compiled = compile_template(body("{{a}}", "Dr. {{b}}", " {{ C }}\n", "{{d}}{{e}}", "{{b}}x"))
    assert compiled.columns == {"a": True, "b": False, "c": True, "d": False, "e": False}
    given = {"a": "1", "b": "", "c": "3", "d": "", "e": "5"}
    assert texts(compiled.render(given)) == ["1", "Dr.", "3", "5", "x"]
    for blank in ("a", "c", "e"):
        with pytest.raises(MissingValue):
            compiled.render(given | {blank: " \n"})


@pytest.mark.parametrize("text", ["{{}}", "{{ }}", "Hi {{name", "{{a{{b}}"])
def test_what_is_no_placeholder_is_refused(text):
    with pytest.raises(TemplateError):
        compile_template(body(text))


def test_components_that_are_no_objects_pass_through():
    assert compile_template(template("x")).render({})["components"] == ["x"]


@given(st.text())
@example("a\u2028b")
@example(" \n ")
def test_flattened_text_is_what_meta_takes(text):
    flat = flatten(text)
    assert not set("\n\r\t\v\f\u2028\u2029\x85") & set(flat)
    assert "  " not in flat
    assert flat == flat.strip(" ")
    assert flatten(flat) == flat
    assert "".join(flat.split()) == "".join(text.split())


def test_column_keys_ignore_case_and_surplus_space():
    assert column_key("  First   NAME ") == "first name"
