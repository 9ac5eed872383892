"""Draws comment sentences of the library at random: python3 sentences.py [SEED] [COUNT] [ROOT].

Prints for each the file, the name of the item that the comment belongs to, and the sentence, without
the code around it. Same seed and same source: same sentences.
"""

import pathlib
import random
import re
import sys

ITEMS = (
    re.compile(r"\b(?:fn|struct|enum|trait|type|const|static|mod|macro_rules!|union)\s+(?!fn\b)(\w+)"),
    re.compile(r"^\s*impl\b.*?(\w+)(?:<[^{]*>)?\s*(?:where.*)?\{?$"),
    re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(\w+)\s*[:({,]"),
)

def comments(path):
    """Yields (line number, text, name of the item below or around) of each block of comments."""
    lines = path.read_text().split("\n")
    at, around = 0, path.stem
    while at < len(lines):
        match = re.match(r"\s*//[/!]? ?(.*)", lines[at])
        if not match:
            found = re.search(r"\bfn (\w+)", lines[at])
            around = found[1] if found else around
            at += 1
            continue
        first, block, inner = at, [], lines[at].lstrip().startswith("//!")
        while at < len(lines) and (match := re.match(r"\s*//[/!]? ?(.*)", lines[at])):
            block.append(match[1])
            at += 1
        below = at
        while below < len(lines) and re.match(r"\s*(#\[.*|$)", lines[below]):
            below += 1
        found = (item.search(lines[below]) for item in ITEMS if below < len(lines))
        name = path.stem if inner else next((item[1] for item in found if item), around)
        yield first + 1, block, name


def sentences(block):
    """Splits a block into sentences; leaves out code, tables, headings and lists of links."""
    text, fence, safety = [], False, False
    for line in block:
        safety = line.startswith("SAFETY") or (safety and bool(line.strip()))
        if safety:
            continue
        if line.strip().startswith("```"):
            fence = not fence
            text.append("\0")
        elif fence or re.match(r"\||#|\[[^\]]*\]: |</?\w", line) or not line.strip():
            text.append("\0")
        elif re.match(r"\s*(?:[-*]|\d+\.) ", line):
            text.append("\0" + re.sub(r"^\s*(?:[-*]|\d+\.) ", "", line))
        else:
            text.append(line.strip())
    for part in " ".join(text).split("\0"):
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`\[(*])", part.strip()):
            if len(sentence.split()) >= 4 and "{" not in sentence:
                yield sentence.strip()


def main():
    seed, count = (int(arg) for arg in (sys.argv[1:3] + ["13", "60"][len(sys.argv[1:3]) :]))
    root = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else pathlib.Path(__file__).parents[2])
    source = root / "crates/slipring/src"
    everything = [
        (path.relative_to(source), line, name, sentence)
        for path in sorted(source.rglob("*.rs"))
        for line, block, name in comments(path)
        for sentence in sentences(block)
    ]
    print(f"{len(everything)} sentences, {count} drawn with seed {seed}\n")
    for path, line, name, sentence in random.Random(seed).sample(everything, count):
        print(f"{path}:{line} {name}\n    {sentence}\n")


if __name__ == "__main__":
    main()
