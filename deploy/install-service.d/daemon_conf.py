"""Prints a configuration file for the service: every setting that
`roundhoused --help` lists, with its meaning and its default, as comments, and
those that a service needs.

    daemon_conf.py --program ROUNDHOUSED
"""

import argparse
import re
import subprocess
import sys

# What differs from a daemon that a person starts. The rest is commented out.
SERVICE = {
    "state-dir": "/var/lib/roundhouse",
    "listen": "unix:/run/roundhouse/roundhoused.sock",
    "data-root": "/srv/roundhouse",
    "hf-cache": "/srv/roundhouse/hub",
}


def settings(text):
    """[(key, value's name, meaning with the default)] of the help text."""
    found = []
    for line in text.splitlines():
        match = re.match(r"  +--([a-z-]+)[ =](\S+) *(.*)", line)
        if match:
            found.append([match[1], match[2], match[3].strip()])
        elif found and re.match(r"   +\S", line):
            found[-1][2] = f"{found[-1][2]} {line.strip()}".strip()
        elif found:
            break
    return [(key, name, meaning) for key, name, meaning in found
            if key != "config"  # no setting of a file
            and not meaning.startswith("test only")]


def wrapped(text, columns=78):
    line = "#"
    for word in text.split():
        if len(line) + 1 + len(word) > columns:
            yield line
            line = "#"
        line += " " + word
    yield line


def configuration(text):
    lines = ["# Settings of roundhoused. A line is \"key: value\"; \"#\" begins "
             "a comment.",
             "# After a change: systemctl restart roundhoused",
             ""]
    keys = []
    for key, name, meaning in settings(text):
        keys.append(key)
        lines += wrapped(meaning)
        lines.append(f"{key}: {SERVICE[key]}" if key in SERVICE
                     else f"#{key}: {name}")
        lines.append("")
    missing = SERVICE.keys() - set(keys)
    if missing:
        raise ValueError(f"the help text has no {sorted(missing)}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    program = parser.parse_args().program
    text = subprocess.run([program, "--help"], check=True, text=True,
                          capture_output=True).stdout
    try:
        print(configuration(text))
    except ValueError as error:
        sys.exit(f"daemon_conf: {error}")


if __name__ == "__main__":
    main()
