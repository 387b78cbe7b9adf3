from __future__ import annotations

import subprocess

import pytest

from services.brain.model.rehearsal.analysis import compute_command, plain_command
from services.brain.model.rehearsal.conversation import Conversation, Document
from services.brain.model.rehearsal.table import Table, find_table

CSV = """\
order_id,date,region,product,units,revenue
1,2026-01-04,North,"Gate, large",3,120.50
2,2026-01-09,South,Fence,10,99.00
3,2026-02-11,North,Fence,4,
4,2026-02-17,East,"Gate, large",1,40.10
"""


def _table(text: str, *documents: Document) -> Table:
    table = find_table(Conversation(text, documents))
    assert table is not None
    return table


@pytest.mark.parametrize(
    "text",
    [
        f"Here is sales.csv, look at it, please:\n{CSV}Thank you, really.",
        f"Here is sales.csv:\n\n```csv\n{CSV}```\nThank you.",
        f"sales.csv\n```\n{CSV}```\n",
    ],
)
def test_a_table_is_found_wherever_it_stands(text: str) -> None:
    table = _table(text)
    assert (table.name, table.text) == ("sales.csv", CSV)
    assert "2026-01-04" not in table.rest


def test_an_attached_document_is_a_table_under_its_title() -> None:
    table = _table("what is in it?", Document("Q1 herd.csv", CSV))
    assert (table.name, table.text, table.rest) == ("herd.csv", CSV, "what is in it?")


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters_are_read(delimiter: str) -> None:
    table = _table(f"a{delimiter}b\nx{delimiter}1\ny{delimiter}2\n")
    assert (table.delimiter, table.numeric) == (delimiter, ("b",))


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "one, two and three\nand, so on\n",
        "```\nx = [1, 2]\ny = f(a, b)\nz\n```\n",
        "1,2\n3,4\n5,6\n",
        "a,a\n1,2\n3,4\n",
        "a,b\n1,2\n",
    ],
)
def test_prose_code_and_headless_numbers_are_no_table(text: str) -> None:
    assert find_table(Conversation(text)) is None


def test_columns_are_told_apart() -> None:
    table = _table(CSV)
    assert table.numeric == ("units", "revenue")
    assert table.measure == "revenue"
    assert table.groups == ("product",)
    assert table.month == "date"


def test_prices_and_rates_are_not_added_up() -> None:
    table = _table("region,amount,unit_price\nN,1,2.5\nS,2,3.5\nN,3,4\n")
    assert (table.numeric, table.additive) == (("amount", "unit_price"), ("amount",))
    assert table.measure == "amount"


def _run(command: str) -> str:
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_computes_what_it_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("w") / "it's.csv"
    path.write_text(CSV)
    assert _run(compute_command(_table(CSV), str(path))).splitlines() == [
        "rows: 4",
        "units: sum 18, mean 4.5, min 1, max 10",
        "revenue: sum 259.6, mean 86.53, min 40.1, max 120.5",
        "revenue by product: Gate, large 160.6 (62 %), Fence 99 (38 %)",
        "revenue by month: 2026-01 219.5 (85 %), 2026-02 40.1 (15 %)",
    ]


def test_hostile_names_stay_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    name = "x'); import os; os.abort() #$(false)`\\ @PATH@ 🐄"
    text = f'"{name}",n\na,1\nb,2\na,3\nb,4\n'
    path = tmp_path_factory.mktemp("w") / "data.csv"
    path.write_text(text)
    assert f"n by {name}: b 6 (60 %), a 4 (40 %)" in _run(compute_command(_table(text), str(path)))


def test_without_numbers_rows_are_counted(tmp_path_factory: pytest.TempPathFactory) -> None:
    text = "who,what\na,x\nb,x\na,y\na,x\n"
    path = tmp_path_factory.mktemp("w") / "data.csv"
    path.write_text(text)
    assert "rows by who: a 3 (75 %), b 1 (25 %)" in _run(compute_command(_table(text), str(path)))


def test_awk_gives_the_same_sums(tmp_path_factory: pytest.TempPathFactory) -> None:
    text = "region,units,revenue\nN,1,2.5\nS,2,3.5\nN,3,4\n"
    path = tmp_path_factory.mktemp("w") / "it's.csv"
    path.write_text(text)
    assert sorted(_run(plain_command(_table(text), str(path))).splitlines()) == [
        "revenue: sum 10.00, mean 3.33",
        "rows: 3",
        "units: sum 6.00, mean 2.00",
    ]
