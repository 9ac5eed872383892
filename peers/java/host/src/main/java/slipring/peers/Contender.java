package slipring.peers;

/** One implementation of one kind of work. */
public interface Contender {
    /**
     * Does the work of a request once. Fails if an event is lost, doubled, damaged or out of order.
     *
     * @return the answer, such as {@code ns 7.61}
     */
    String run(Request request) throws Exception;

    /** Makes the contenders of one module. It has a constructor without parameters. */
    interface Factory {
        /** Makes the contender that a request names, for the request's kind of work. */
        Contender make(Request request);
    }
}
