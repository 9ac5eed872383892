package slipring.peers.rings;

import java.util.Scanner;
import java.util.concurrent.ArrayBlockingQueue;
import slipring.peers.Request;

/** A queue that damages event 100. Runs each kind of work, and prints a line for each answer. */
final class FaultyQueue implements Queue {
    private final ArrayBlockingQueue<Long> events;

    private FaultyQueue(int ring) {
        events = new ArrayBlockingQueue<>(ring);
    }

    @Override
    public Sender sender() {
        return number -> events.offer(number == 100 ? 99 : number);
    }

    @Override
    public Receiver receiver() {
        return handler -> {
            Long number = events.poll();
            if (number == null) {
                return false;
            }
            handler.handle(number);
            return true;
        };
    }

    private static String answer(Request request) throws Exception {
        Queue queue = new FaultyQueue(request.count("ring"));
        return switch (request.kind()) {
            case "open" -> OpenLoop.run(request, Queue.ends(queue, false));
            case "shape" -> Shapes.pipeline(request, FaultyQueue::new);
            default ->
                    request.contender().equals("two-threads")
                            ? Pools.onTwoThreads(request, queue)
                            : Pools.onThreeThreads(request, queue);
        };
    }

    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            try {
                System.out.println(answer(Request.parse(lines.nextLine())));
            } catch (Exception error) {
                System.out.println("error " + error);
            }
        }
    }
}
