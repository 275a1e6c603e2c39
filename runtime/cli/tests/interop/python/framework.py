"""Calls of file tools that every framework's script makes, and what its model must receive.

A script runs as `SCRIPT PROGRAM ROOT`. ROOT holds `a.txt`, `pixel.png` and `secret/key`, which the server denies.
"""

import asyncio
import json
import re
import sys
from pathlib import Path

PROGRAM, ROOT = sys.argv[1:3]
ARGUMENTS = ["serve", "--deny", "secret/**", ROOT]
OUTSIDE = Path(ROOT).parent / "outside.txt"


def shown(message):
    """A message to a model as one text."""
    return message if isinstance(message, str) else json.dumps(message, default=str, ensure_ascii=False)


# What no model is to receive: content that it may not read, and links to pages for people.
UNWANTED = ["hidden content", "ui://"]


def includes(message, *parts):
    text = shown(message)
    for part in parts:
        assert part in text, f"the model does not receive {part!r}: {text}"
    for part in UNWANTED:
        assert part not in text, f"the model receives {part!r}: {text}"


def denied(message, path):
    includes(message, path)
    codes = ("PERMISSION_DENIED", "SCOPE_REQUIRED")
    assert any(code in shown(message) for code in codes), f"the model is not told of the denial: {shown(message)}"


async def exercise(schemas, call, image):
    """Makes the calls. `schemas` are the tools as the model receives them, by name; `call` gives the message for the model, and
    `image` says whether such a message has the picture, in the form in which the framework gives it to a model."""
    for name in ("read_file", "list_directory", "grep", "find", "edit_file", "write_file"):
        assert name in schemas, f"{name} is not offered: {sorted(schemas)}"
    includes(schemas["read_file"], "path")
    includes(schemas["edit_file"], "edits", "old_text", "new_text")
    includes(schemas["write_file"], "append", "create")
    text = Path(ROOT, "a.txt").read_text()
    includes(await call("list_directory", {"path": "."}), "a.txt", "pixel.png")
    includes(await call("read_file", {"path": "a.txt"}), *text.splitlines())
    includes(await call("grep", {"pattern": "second"}), "a.txt", "second line")
    edits = [{"old_text": "line\nsecond", "new_text": "row\nsecond"}]
    edited = await call("edit_file", {"path": "a.txt", "edits": edits})
    includes(edited, "a.txt")
    changed = text.replace("first line", "first row")
    assert Path(ROOT, "a.txt").read_text() == changed, shown(edited)
    denied(await call("read_file", {"path": "secret/key"}), "secret/key")
    denied(await call("write_file", {"path": str(OUTSIDE), "content": "x"}), OUTSIDE.name)
    assert not OUTSIDE.exists()
    picture = await call("read_file", {"path": "pixel.png"})
    assert image(picture), f"the model does not receive the picture: {shown(picture)}"
    Path(ROOT, "a.txt").write_text(text)


def files():
    """What the root holds."""
    return {path: path.read_bytes() for path in Path(ROOT).rglob("*") if path.is_file()}


async def preview(schemas, call, image):
    """Previews and makes changes, as a model does where previews are required."""
    text = Path(ROOT, "a.txt").read_text()
    edit = {"path": "a.txt", "edits": [{"old_text": "second line", "new_text": "second row"}]}
    write = {"path": "new.txt", "content": "all new\n"}
    for name, arguments, diff in [
        ("edit_file", edit, ["-second line", "+second row"]),
        ("write_file", write, ["+all new"]),
    ]:
        includes(schemas[name], "preview", "preview_token")
        before = files()
        includes(await call(name, arguments), "STALE_PREVIEW", "preview_token")
        previewed = await call(name, {**arguments, "preview": True})
        includes(previewed, *diff)
        assert files() == before, f"a preview changed something: {shown(previewed)}"
        token = re.search(r"preview_token\W+([0-9a-f]{64})", shown(previewed))
        assert token, f"the model does not receive the token: {shown(previewed)}"
        includes(await call(name, {**arguments, "preview_token": token[1]}), arguments["path"])
        assert files() != before
    assert Path(ROOT, "a.txt").read_text() == text.replace("second line", "second row")
    assert Path(ROOT, "new.txt").read_text() == "all new\n"
    Path(ROOT, "a.txt").write_text(text)
    Path(ROOT, "new.txt").unlink()


def run(session):
    """Runs `session(options, steps)`, which starts the program with `options` and awaits `steps(schemas, call, image)`."""

    async def main():
        await session(ARGUMENTS, exercise)
        await session([*ARGUMENTS, "--require-preview"], preview)

    asyncio.run(main())
