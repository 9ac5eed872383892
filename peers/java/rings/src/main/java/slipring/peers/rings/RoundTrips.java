package slipring.peers.rings;

import java.util.concurrent.FutureTask;
import slipring.peers.Request;
import slipring.peers.Threads;

/** Round trips from a thread on core 0 through a thread on core 1 and back. */
final class RoundTrips {
    /** Both sides of a round trip. */
    interface Sides {
        /** Answers so many rounds; runs on the other thread. */
        void echo(int rounds) throws Exception;

        /** Sends a number and returns the answer. */
        long round(long number) throws Exception;
    }

    private RoundTrips() {}

    static String run(Request request, Sides sides) throws Exception {
        int rounds = request.count("rounds");
        Threads threads = new Threads();
        threads.start(
                () -> {
                    sides.echo(rounds);
                    return null;
                },
                1);
        FutureTask<long[]> times =
                threads.start(
                        () -> {
                            long[] all = new long[rounds];
                            for (int i = 0; i < rounds; i++) {
                                all[i] = time(sides, i + 1);
                            }
                            return all;
                        },
                        0);
        threads.join();
        return Percentiles.answer(times.get(), 50, 99);
    }

    private static long time(Sides sides, long number) throws Exception {
        long begin = System.nanoTime();
        long answer = sides.round(number);
        long took = System.nanoTime() - begin;
        if (answer != number) {
            throw new IllegalStateException("a wrong answer: " + answer + " to " + number);
        }
        return took;
    }

    /** Round trips through two queues, which both threads poll. */
    static Sides through(Queue there, Queue back) {
        Queue.Sender request = there.sender();
        Queue.Receiver requests = there.receiver();
        Queue.Sender response = back.sender();
        Queue.Receiver responses = back.receiver();
        return new Sides() {
            private final Last answer = new Last();

            @Override
            public void echo(int rounds) {
                Last question = new Last();
                for (int round = 0; round < rounds; round++) {
                    echoOne(question);
                }
            }

            private void echoOne(Last question) {
                receive(requests, question);
                send(response, question.number);
            }

            @Override
            public long round(long number) {
                send(request, number);
                receive(responses, answer);
                return answer.number;
            }
        };
    }

    private static void send(Queue.Sender sender, long number) {
        while (!sender.trySend(number)) {
            Thread.onSpinWait();
        }
    }

    private static void receive(Queue.Receiver receiver, Last last) {
        while (!receiver.tryReceive(last)) {
            Thread.onSpinWait();
        }
    }

    /** Remembers the last number. */
    private static final class Last implements Handler {
        private long number;

        @Override
        public void handle(long next) {
            number = next;
        }

        @Override
        public boolean isOpen() {
            return true;
        }
    }
}
