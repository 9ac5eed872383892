"""Compares two builds of `house`: python3 rounds.py BEFORE AFTER ROUNDS [CPUS] [ROW ...]

Each round runs a row four times: before, after, after, before. CPUS, as `taskset -c` takes them,
pin rows of several threads; a row of one thread runs on the first of them. `free` pins nothing.
Prints, in ns an operation: minimum and median of each build; then the median and the quartiles of
the ratios by round.
"""
import statistics, subprocess, sys

before, after, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
cpus = sys.argv[4] if len(sys.argv) > 4 else "free"
rows = sys.argv[5:] or subprocess.run([before, "list"], capture_output=True, text=True, check=True).stdout.split()


def run(program, row):
    several = row.startswith(("two", "three", "segment_two"))
    pin = [] if cpus == "free" else ["taskset", "-c", cpus if several else cpus.split(",")[0]]
    return float(subprocess.run(pin + [program, row], capture_output=True, text=True, check=True).stdout)


values = {row: ([], [], []) for row in rows}
for _ in range(rounds):
    for row, (old, new, ratios) in values.items():
        a, b, c, d = [run(program, row) for program in (before, after, after, before)]
        old += [a, d]
        new += [b, c]
        ratios.append((b + c) / (a + d))
print(f"{rounds} rounds, {cpus}")
for row, (old, new, ratios) in values.items():
    ratios.sort()
    quarter = len(ratios) // 4
    print(f"{row:26} min {min(old):9.1f} {min(new):9.1f}  median {statistics.median(old):9.1f} {statistics.median(new):9.1f}  ratio {statistics.median(ratios):.3f} ({ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})", flush=True)
