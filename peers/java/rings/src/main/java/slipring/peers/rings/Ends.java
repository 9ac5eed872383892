package slipring.peers.rings;

/** Both ends of a ring or a queue with one producer and one consumer. */
interface Ends {
    Publisher publisher();

    Receiver receiver();

    /** The producer's end. */
    interface Publisher {
        /** Publishes events, given their first number and their count; waits while it is full. */
        void publish(long first, long count);
    }

    /** The consumer's end. */
    interface Receiver {
        /** Receives events until the handler has seen all. */
        void receive(Handler handler) throws Exception;
    }
}
