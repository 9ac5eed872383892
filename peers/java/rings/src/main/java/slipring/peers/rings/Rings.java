package slipring.peers.rings;

import java.util.function.IntFunction;
import slipring.peers.Contender;
import slipring.peers.Request;

/** Makes the contenders of this module. */
public final class Rings implements Contender.Factory {
    @Override
    public Contender make(Request request) {
        return switch (request.kind()) {
            case "stream" -> stream -> Streams.stream(stream, ends(stream));
            case "busy" -> busy -> Streams.busy(busy, ends(busy));
            case "round-trip" -> trip -> RoundTrips.run(trip, roundTrip(trip));
            case "shape" -> Rings::shape;
            case "pool" -> QuestDb::pool;
            default -> throw request.unknown();
        };
    }

    private static IntFunction<Queue> queue(Request request) {
        IntFunction<Queue> queue =
                switch (request.contender()) {
                    case "questdb" -> ring -> new QuestDb(ring, false);
                    case "questdb-multi" -> ring -> new QuestDb(ring, true);
                    default -> Queues.named(request.contender());
                };
        if (queue == null) {
            throw request.unknown();
        }
        return queue;
    }

    private static Ends ends(Request request) {
        int ring = request.count("ring");
        return switch (request.contender()) {
            case "lmax" -> Lmax.ends(ring, false, false);
            case "lmax-spinning" -> Lmax.ends(ring, false, true);
            case "lmax-multi" -> Lmax.ends(ring, true, false);
            case "lmax-multi-spinning" -> Lmax.ends(ring, true, true);
            default -> Queue.ends(queue(request).apply(ring), request.batched());
        };
    }

    private static RoundTrips.Sides roundTrip(Request request) {
        if (request.contender().equals("lmax")) {
            return Lmax.roundTrip();
        }
        IntFunction<Queue> queue = queue(request);
        return RoundTrips.through(queue.apply(1024), queue.apply(1024));
    }

    private static String shape(Request request) throws Exception {
        if (request.contender().startsWith("lmax")) {
            return Lmax.shape(request);
        }
        if (request.text("form").equals("fan-in")) {
            return Shapes.fanIn(request, queue(request).apply(request.count("ring")));
        }
        return QuestDb.shape(request);
    }
}
