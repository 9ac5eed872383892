package slipring.peers.rings;

/** A bounded queue that never blocks. */
interface Queue {
    /** Returns the end of a further producer. */
    Sender sender();

    /** Returns the only consumer's end, or that of a further consumer of a shared queue. */
    Receiver receiver();

    /** A producer's end. */
    interface Sender {
        /** Sends an event, unless the queue is full. */
        boolean trySend(long number);

        /** Sends events by the queue's own batch call, if it has one. */
        default void sendBatch(long first, long count) {
            for (long number = first; number < first + count; number++) {
                while (!trySend(number)) {
                    Thread.onSpinWait();
                }
            }
        }
    }

    /** The consumer's end. */
    interface Receiver {
        /** Receives an event, unless the queue is empty. */
        boolean tryReceive(Handler handler);

        /**
         * Receives available events, at most {@code max}, by the queue's own batch call if it has
         * one. Returns their number.
         */
        default int receiveBatch(Handler handler, int max) {
            int had = 0;
            while (had < max && tryReceive(handler)) {
                had++;
            }
            return had;
        }
    }

    /** Makes both ends of a stream, which spin while they wait. */
    static Ends ends(Queue queue, boolean batched) {
        Sender sender = queue.sender();
        Receiver receiver = queue.receiver();
        return new Ends() {
            @Override
            public Publisher publisher() {
                if (batched) {
                    return sender::sendBatch;
                }
                return (number, count) -> {
                    while (!sender.trySend(number)) {
                        Thread.onSpinWait();
                    }
                };
            }

            @Override
            public Receiver receiver() {
                if (batched) {
                    return handler -> {
                        while (handler.isOpen()) {
                            if (receiver.receiveBatch(handler, BATCH) == 0) {
                                Thread.onSpinWait();
                            }
                        }
                    };
                }
                return handler -> receiveSpinning(receiver, handler);
            }
        };
    }

    /** Receives events until the handler has seen all, and spins while the queue is empty. */
    static void receiveSpinning(Receiver receiver, Handler handler) {
        while (handler.isOpen()) {
            if (!receiver.tryReceive(handler)) {
                Thread.onSpinWait();
            }
        }
    }

    /** The most events that a consumer takes by one batch call. */
    int BATCH = 1024;
}
