"""S3: what an agent leaves for later runs inside its sandbox, or does not run at all."""

from __future__ import annotations

from tests.doubles.hands_stack import HandsStack

LEAVE = """
for f in .bashrc .bash_profile .profile .bash_login .bash_logout .inputrc .pythonrc; do
  echo 'echo rc >>/workspace/ran' >~/$f; echo 'echo rc >>/workspace/ran' >/workspace/$f
done
mkdir -p ~/.local/lib/python3/site-packages services .claude/skills/x
version=$(python3 -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')
mkdir -p ~/.local/lib/python$version/site-packages
for d in . ~ services ~/.local/lib/python$version/site-packages; do
  for m in os resource select usercustomize sitecustomize _json; do
    echo "open('/workspace/ran', 'a').write('python')" >$d/$m.py
  done
done
echo '{"mcpServers": {"x": {"command": "touch", "args": ["/workspace/ran"]}}}' >.mcp.json
echo 'touch /workspace/ran' >.claude/skills/x/SKILL.md
export BASH_ENV=/workspace/.bashrc ENV=/workspace/.bashrc PYTHONPATH=/workspace
"""


async def test_shells_and_agents_of_later_turns_run_none_of_it(hands: HandsStack) -> None:
    await hands.bash(LEAVE)
    await hands.bash("rm -f ran")
    assert "restarted" in (await hands.run("bash", restart=True)).content[0].text.text
    assert await hands.bash("ls ran 2>/dev/null; :") == ""
    await hands.executor.release("sesn_1")  # the next turn's sandbox is another
    assert await hands.bash("ls -d ran 2>/dev/null; echo $BASH_ENV$ENV$PYTHONPATH") == ""


async def test_hooks_run_inside_and_nowhere_else(hands: HandsStack) -> None:
    await hands.bash(
        "git init -q . && mkdir -p .git/hooks && cat >.git/hooks/pre-commit <<'EOF'\n"
        "#!/bin/sh\nhostname >>/workspace/hooked; cat /tmp/mark >>/workspace/hooked\nEOF\n"
        "chmod +x .git/hooks/pre-commit"
    )
    await hands.executor.release("sesn_1")
    volume = hands.pool._workspaces.find("sesn_1")
    assert volume is not None
    assert not (volume.root / "workspace" / "hooked").exists()  # nothing of the host's looks there
    shown = await hands.bash(
        "echo $RANDOM$RANDOM >/tmp/mark; "
        "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x 2>&1; cat /tmp/mark"
    )
    assert await hands.bash("cat hooked") == f"sandbox\n{shown}"
