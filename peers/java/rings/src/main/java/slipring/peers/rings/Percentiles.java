package slipring.peers.rings;

import java.util.Arrays;
import java.util.stream.Collectors;

/** Percentiles of times, as the contenders in Rust compute them. */
final class Percentiles {
    private Percentiles() {}

    /** Returns the answer, such as {@code p50 120 p99 400}. Sorts the times. */
    static String answer(long[] times, long... percents) {
        Arrays.sort(times);
        return Arrays.stream(percents)
                .mapToObj(part -> "p" + part + " " + times[(int) ((times.length - 1) * part / 100)])
                .collect(Collectors.joining(" "));
    }
}
