"""Runs two builds of `review` in turn, and prints medians and the ratio by round."""
import statistics, subprocess, sys

before, after, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
results = {before: {}, after: {}}
for number in range(rounds):
    for program in (before, after) if number % 2 == 0 else (after, before):
        for line in subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines():
            name, value = line.rsplit(" ", 1)
            results[program].setdefault(name, []).append(float(value))
for name, old in results[before].items():
    new = results[after][name]
    ratios = sorted(b / a for a, b in zip(old, new))
    quarter = len(ratios) // 4
    print(f"{name:34} {statistics.median(old):10.2f} {statistics.median(new):10.2f}  {statistics.median(ratios):.2f} ({ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f})")
for kind in ("reader", "producer", "mpsc"):
    fired = [[float(subprocess.run([p, "timer", kind], capture_output=True, text=True, check=True).stdout) for _ in range(5)] for p in (before, after)]
    print(f"timer of 20 ms beside a {kind:10} {statistics.median(fired[0]):10.1f} {statistics.median(fired[1]):10.1f}")
