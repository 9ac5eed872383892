package slipring.peers.rings;

/** What a consumer does with its events. */
interface Handler {
    /** Handles the next event. */
    void handle(long number);

    /** Returns whether more events come. */
    boolean isOpen();
}
