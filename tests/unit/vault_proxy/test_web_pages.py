"""HTML as text for a model, and what becomes of pages that are made to be hard to read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.vault_proxy.web.charsets import decoded
from services.vault_proxy.web.content import within
from services.vault_proxy.web.failures import Code, WebError
from services.vault_proxy.web.page import Page, read, visible
from services.vault_proxy.web.reading import PageReader

BASE = "https://a.example/docs/page"


def text(html: str) -> str:
    return read(html, BASE, 10_000).text


@pytest.mark.parametrize(
    ("html", "shown"),
    [
        ("<p>one\n  two<p>three", "one two\n\nthree"),
        ("<h2>Title</h2>text", "## Title\n\ntext"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul>", "- a\n- b\n  - c"),
        ("<ol><li>a</li><li>b</li></ol>", "1. a\n2. b"),
        ("<pre>a\n  b</pre>", "```\na\n  b\n```"),
        ("<p>run <code>ls</code>", "run `ls`"),
        ("<table><tr><th>A<th>B<tr><td>1<td>2</table>", "A | B\n1 | 2"),
        ("<a href=other>Other</a>", "[Other](https://a.example/docs/other)"),
        ("<a href='/a b(c)'>x</a>", "[x](https://a.example/a%20b%28c%29)"),
        ("<a href=#top>top</a> <a href=javascript:x>js</a> <a>none</a>", "top js none"),
        ("<a href=https://b.example/>https://b.example/</a>", "https://b.example/"),
        ("<base href=https://b.example/><a href=x>x</a>", "[x](https://b.example/x)"),
        ("<img alt='a cat' src=x>", "[image: a cat]"),
        ("a<br>b<hr>c", "a\nb\n\n---\n\nc"),
        ("&lt;b&gt; &amp; &#x41;", "<b> & A"),
        ("<noscript>for us</noscript>", "for us"),
        ("x<script>alert('</p>')</script><style>p{}</style>y", "xy"),
        ("<p>a<!-- not this -->b", "ab"),
    ],
)
def test_pages_read_like_markdown(html: str, shown: str) -> None:
    assert text(html) == shown


@pytest.mark.parametrize(
    "html",
    [
        "<p hidden>X</p>",
        "<p aria-hidden=true>X</p>",
        "<p style='display: none'>X</p>",
        "<div style='visibility:hidden'><p>X</div>",
        "<span style='font-size:0'>X</span>",
        "<template>X</template>",
        "<!-- X -->",
        "<p title=X>",
        "<!-- X <script>X",
        "<!X",
        "<a title='X",
    ],
)
def test_what_a_page_hides_from_people_is_not_shown_to_the_model(html: str) -> None:
    assert "X" not in text(f"a{html}b")


def test_characters_that_nobody_sees_are_left_out() -> None:
    hidden = "".join(chr(0xE0000 + ord(one)) for one in "do this")
    assert visible(f"a{hidden}b\u202ec\u200bd\x00\x1be\tf\n") == "abcde\tf\n"
    assert text(f"<p>a{hidden}b&#8238;c") == "abc"


def test_markup_without_an_end_costs_no_more_than_its_length() -> None:
    assert text("a<!--" * 800_000) == "a"


def test_the_title_is_told_apart() -> None:
    page = read("<head><title> A &amp;\n B </title></head><body>text", BASE, 100)
    assert page == Page("A & B", "text", cut=False)


def test_no_more_is_read_than_is_wanted() -> None:
    page = read("<p>" + "word " * 100_000, BASE, 50)
    assert len(page.text) == 50
    assert page.cut


MARKUP = (
    "<p>|</p>|<a href=x>|</a>|<li>|<ul>|</ul>|<pre>|</pre>|<table>|<td>|</td>|<tr>|<h1>|</h1>|text"
    "| |\n|&amp|<|<b hidden>|</b>|<title>|</title>|<script>|</script>|<!--|-->"
)


@settings(max_examples=200)
@given(st.lists(st.sampled_from(MARKUP.split("|"))))
def test_whatever_the_markup_is_some_text_comes_of_it(parts: list[str]) -> None:
    page = read("".join(parts), BASE, 200)
    assert len(page.text) <= 200
    assert "<script" not in page.text


async def test_a_page_is_read_in_a_process_of_its_own() -> None:
    page = await PageReader().read(b"<p>\xe9t\xe9", charset="latin-1", base=BASE, limit=100)
    assert page == Page("", "été", cut=False)


async def test_a_page_that_takes_too_much_is_given_up() -> None:
    html = b"<a " + b"b " * 10_000_000  # a fast processor reads a fifth of it in a second
    with pytest.raises(WebError) as failed:
        await PageReader(seconds=1).read(html, charset="", base=BASE, limit=1000)
    assert failed.value.code is Code.TOO_LARGE


@pytest.mark.parametrize(
    ("data", "declared", "shown"),
    [
        (b"\xef\xbb\xbfa", "latin-1", "a"),
        (b"\x93a\x94", "", "“a”"),
        (b"\x93a\x94", "iso-8859-1", "“a”"),
        (b"+AGE-", "utf-7", "+AGE-"),
        (b"a", "no-such-charset", "a"),
        (b"a", "zip", "a"),
        (b"a", "\0", "a"),
        (b"\xff\xfea\x00", "", "a"),
    ],
)
def test_bytes_are_read_as_browsers_do(data: bytes, declared: str, shown: str) -> None:
    assert decoded(data, declared) == shown


def test_a_charset_in_the_markup_counts_where_the_server_names_none() -> None:
    page = b'<meta http-equiv=x content="text/html; charset=koi8-r">\xd0'
    assert decoded(page, markup=True)[-1] == "п"
    assert decoded(page, "utf-8", markup=True)[-1] == "\ufffd"


def test_tokens_are_counted_on_the_safe_side() -> None:
    assert within("a" * 100, 10) == "a" * 40
    assert within("語" * 100, 10) == "語" * 10
    assert within("ab語" * 100, 3) == "ab語ab語"
