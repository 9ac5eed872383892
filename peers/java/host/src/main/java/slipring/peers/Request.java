package slipring.peers;

import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * A request: a kind of work, a contender and parameters, such as {@code stream lmax ring=1024
 * events=600000 batch=1 steps=0 warm=30 warm_ms=500}.
 */
public record Request(String kind, String contender, Map<String, String> parameters) {
    public static Request parse(String line) {
        String[] words = line.trim().split(" +");
        if (words.length < 2) {
            throw new IllegalArgumentException("not a request: " + line);
        }
        Map<String, String> parameters =
                Arrays.stream(words, 2, words.length)
                        .map(word -> word.split("=", 2))
                        .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
        return new Request(words[0], words[1], parameters);
    }

    public String text(String name) {
        String value = parameters.get(name);
        if (value == null) {
            throw new IllegalArgumentException("the request has no parameter " + name);
        }
        return value;
    }

    public long number(String name) {
        return Long.parseLong(text(name));
    }

    public int count(String name) {
        return Math.toIntExact(number(name));
    }

    /** Returns whether events are published in batches. */
    public boolean batched() {
        return parameters.containsKey("batch") && number("batch") > 1;
    }

    public IllegalArgumentException unknown() {
        return new IllegalArgumentException("no contender " + contender + " does " + kind);
    }
}
