"""Has a program look for its libraries beside itself.

    find_wheels.py --from FOLDER PROGRAM...

The run path that the linker wrote names the wheels' folder of the machine that
built the program. Each entry below FOLDER becomes one below $ORIGIN/wheels, in
the file. A program without such an entry is an error."""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "gpu-bundle.d"))

import run_path


def moved(text, folder):
    """The run path `text` with what lies below `folder` beside the program;
    what lies elsewhere is left out, since nobody else can read it."""
    entries = []
    for entry in text.split(":"):
        if entry == folder or entry.startswith(folder + "/"):
            entries.append("$ORIGIN/wheels" + entry[len(folder):])
        elif entry.startswith("$ORIGIN"):
            entries.append(entry)
    return ":".join(entries)


def find_wheels(path, folder):
    found = run_path.run_path(path)
    if not found or folder not in found:
        raise ValueError(f"{path} does not look for libraries in {folder}, "
                         f"but in {found}")
    mode = path.stat().st_mode
    path.chmod(0o755)
    run_path.set_run_path(path, moved(found, folder))
    path.chmod(mode)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="folder", required=True)
    parser.add_argument("programs", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    for program in options.programs:
        try:
            find_wheels(program, options.folder.rstrip("/"))
        except ValueError as error:
            sys.exit(f"find_wheels: {error}")


if __name__ == "__main__":
    main()
