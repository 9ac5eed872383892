package slipring.peers;

/** Checks order and sum of a consumer's events, whose numbers are 1, 2, 3, ... */
public final class Check {
    private long seen;
    private long sum;
    private long wrong;

    /** Checks the next event. */
    public void see(long number) {
        seen++;
        sum += number;
        if (number != seen) {
            wrong++;
        }
    }

    /** Returns the number of events so far. */
    public long seen() {
        return seen;
    }

    /** Fails unless the events were exactly 1 to {@code events}, in order. */
    public void finish(long events) {
        if (seen != events) {
            throw new IllegalStateException(
                    "events lost or doubled: " + seen + " instead of " + events);
        }
        if (wrong != 0) {
            throw new IllegalStateException("events out of order or damaged: " + wrong);
        }
        if (sum != events * (events + 1) / 2) {
            throw new IllegalStateException("events damaged");
        }
    }
}
