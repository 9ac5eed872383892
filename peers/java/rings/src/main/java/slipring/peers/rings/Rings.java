package slipring.peers.rings;

import java.util.function.IntFunction;
import slipring.peers.Contender;
import slipring.peers.Request;

/** Makes the contenders of this module. */
public final class Rings implements Contender.Factory {
    @Override
    public Contender make(Request request) {
        if (request.contender().equals("aeron")) {
            return switch (request.kind()) {
                case "stream" -> AeronIpc::stream;
                case "round-trip" -> AeronIpc::roundTrip;
                default -> throw request.unknown();
            };
        }
        return switch (request.kind()) {
            case "stream" -> stream -> Streams.stream(stream, ends(stream));
            case "busy" -> busy -> Streams.busy(busy, ends(busy));
            case "open" -> open -> OpenLoop.run(open, ends(open));
            case "round-trip" -> trip -> RoundTrips.run(trip, roundTrip(trip));
            case "shape" -> Rings::shape;
            case "pool" -> Rings::pool;
            default -> throw request.unknown();
        };
    }

    private static IntFunction<Queue> queue(Request request) {
        IntFunction<Queue> queue =
                switch (request.contender()) {
                    case "questdb" -> QuestDb::single;
                    case "questdb-multi" -> QuestDb::multi;
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
        int ring = request.count("ring");
        String contender = request.contender();
        String form = request.text("form");
        return switch (contender) {
            case "lmax-two-threads" -> Shapes.onTwoThreads(request, Lmax.row(ring));
            case "questdb-two-threads" -> Shapes.onTwoThreads(request, QuestDb.row(ring));
            case "questdb" -> QuestDb.shape(request);
            default -> {
                if (contender.startsWith("lmax")) {
                    yield Lmax.shape(request);
                }
                yield switch (form) {
                    case "fan-in" -> Shapes.fanIn(request, queue(request).apply(ring));
                    case "pipeline" -> Shapes.pipeline(request, queue(request));
                    default -> throw request.unknown();
                };
            }
        };
    }

    private static String pool(Request request) throws Exception {
        int ring = request.count("ring");
        String[] parts = request.contender().split("-two-threads", 2);
        Queue queue =
                parts[0].equals("questdb")
                        ? QuestDb.shared(ring)
                        : Queues.shared(parts[0], ring, request.count("events"));
        if (queue == null) {
            throw request.unknown();
        }
        return parts.length == 1
                ? Pools.onThreeThreads(request, queue)
                : Pools.onTwoThreads(request, queue);
    }
}
