"""What every verb of the command line writes the same way: figures as JSON, never half a file."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import tyro

JsonPath = Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")]


def stamp() -> str:
    """Local time as a folder name."""
    return time.strftime("%Y-%m-%d_%H-%M-%S")


def write_json(path: Path | None, figures: Any) -> None:
    """Write `figures` to `path`, if one was asked for; an interrupted write leaves the old file."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + ".part")
        draft.write_text(json.dumps(figures, indent=1) + "\n")
        draft.replace(path)
