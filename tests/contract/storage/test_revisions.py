"""A revision widens what older code can run on, or narrows it, never both; its name says which."""

from __future__ import annotations

import io
import re

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory

from tests.doubles.databases import SCHEMAS, schema_of

NAME = re.compile(r"(\d{4})_(expand|contract)_[a-z_]+\.py")

# What code that knows nothing of it goes on working with, as PostgreSQL is told it.
WIDENS = re.compile(
    r"CREATE TABLE (IF NOT EXISTS )?(?P<made>\w+)"
    r"|CREATE INDEX (CONCURRENTLY )?(IF NOT EXISTS )?\w+ ON \w+"
    r"|CREATE UNIQUE INDEX (IF NOT EXISTS )?\w+ ON (?P<over>\w+)"
    r"|ALTER TABLE \w+ ADD COLUMN (?P<column>.*)"
    r"|ALTER TABLE \w+ ALTER COLUMN \w+ (DROP NOT NULL|SET DEFAULT .*|SET STORAGE \w+)"
    r"|UPDATE .*|INSERT INTO .*",
    re.IGNORECASE | re.DOTALL,
)
NARROWS = re.compile(
    r"DROP (TABLE|INDEX) .*"
    r"|ALTER TABLE \w+ (DROP COLUMN|DROP CONSTRAINT|ADD CONSTRAINT|RENAME) .*"
    r"|ALTER TABLE \w+ ALTER COLUMN \w+ (SET NOT NULL|DROP DEFAULT|TYPE .*)"
    r"|CREATE UNIQUE INDEX .*"
    r"|UPDATE .*|DELETE FROM .*",
    re.IGNORECASE | re.DOTALL,
)


def statements(upgrade):
    told = io.StringIO()
    opts = {"as_sql": True, "output_buffer": told}
    upgrade(Operations(MigrationContext.configure(dialect_name="postgresql", opts=opts)))
    return [" ".join(one.split()) for one in told.getvalue().split(";") if one.strip()]


def what_is_wrong(kind, found):
    """The statements that a revision of this kind must not have."""
    if kind == "contract":
        return [one for one in found if not NARROWS.fullmatch(one)]
    made, wrong = set(), []
    for one in found:
        match = re.match(WIDENS, one)
        if match is None:
            wrong.append(one)
            continue
        made.add(match["made"])
        column = match["column"] or ""
        # Code that does not know a column does not fill it, nor keep to what must be unique.
        unfilled = "NOT NULL" in column and "DEFAULT" not in column
        if unfilled or (match["over"] and match["over"] not in made):
            wrong.append(one)
    return wrong


def scripts(schema):
    folder = str(schema.migrations)
    return ScriptDirectory(folder, version_locations=[folder])


@pytest.fixture(params=SCHEMAS.values(), ids=SCHEMAS.keys())
def schema(request):
    return request.param


def test_revisions_form_one_line_in_the_order_of_their_names(schema):
    files = sorted(file.name for file in schema.migrations.glob("[0-9]*.py"))
    assert all(NAME.fullmatch(name) for name in files), files
    ids = [name[:4] for name in files]
    assert ids == [f"{number:04}" for number in range(1, len(ids) + 1)]
    script = scripts(schema)
    assert script.get_heads() == [ids[-1]]
    line = [revision.revision for revision in script.walk_revisions()]
    assert line[::-1] == ids == [f"{number:04}" for number in schema.revisions]


def test_revision_expands_or_contracts_as_its_name_says(schema):
    for file in schema.migrations.glob("[0-9]*.py"):
        number, kind = NAME.fullmatch(file.name).groups()
        found = statements(scripts(schema).get_revision(number).module.upgrade)
        assert found, file.name
        assert what_is_wrong(kind, found) == [], file.name


def test_floor_is_raised_by_contracting_revisions_alone(schema):
    contracting = [int(file.name[:4]) for file in schema.migrations.glob("[0-9]*_contract_*.py")]
    # Code that is to run on contracted tables must be of the revision before that, at the least.
    assert schema.oldest >= max((number - 1 for number in contracting), default=1)
    assert contracting or schema.oldest == 1


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("expand", 'op.drop_table("a")'),
        ("expand", 'op.drop_column("a", "b")'),
        ("expand", 'op.execute("ALTER TABLE a ADD COLUMN b INTEGER NOT NULL")'),
        ("expand", 'op.create_index("i", "a", ["b"], unique=True)'),
        ("expand", 'op.alter_column("a", "b", nullable=False)'),
        ("expand", 'op.alter_column("a", "b", new_column_name="c")'),
        ("expand", 'op.rename_table("a", "b")'),
        ("expand", 'op.create_unique_constraint("u", "a", ["b"])'),
        ("expand", 'op.execute("CREATE TABLE a (n INTEGER)"); op.drop_table("b")'),
        ("contract", 'op.execute("CREATE TABLE a (n INTEGER)"); op.drop_table("b")'),
        ("contract", 'op.execute("ALTER TABLE a ADD COLUMN b INTEGER")'),
    ],
)
def test_a_step_in_the_other_direction_is_noticed(kind, body, tmp_path):
    module = scripts(schema_of(tmp_path, [body])).get_revision("0001").module
    assert what_is_wrong(kind, statements(module.upgrade)) != []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("expand", 'op.execute("ALTER TABLE a ADD COLUMN b INTEGER")'),
        ("expand", 'op.execute("ALTER TABLE a ADD COLUMN b INTEGER NOT NULL DEFAULT 0")'),
        ("expand", 'op.create_index("i", "a", ["b"])'),
        ("contract", 'op.drop_column("a", "b"); op.drop_index("i")'),
        ("contract", 'op.alter_column("a", "b", nullable=False)'),
    ],
)
def test_a_step_in_its_own_direction_passes(kind, body, tmp_path):
    module = scripts(schema_of(tmp_path, [body])).get_revision("0001").module
    assert what_is_wrong(kind, statements(module.upgrade)) == []
