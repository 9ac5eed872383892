package slipring.peers.rings;

/** An event of a ring, or the message of a queue of references. */
public final class Event {
    long number;
}
