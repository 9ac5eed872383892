/* A required reader and a producer for segments of slipring, in C11, written from SEGMENT.md alone.
 *
 *     cc -O2 -o client client.c
 *     client read NAME STAGE        handles each event of a stage, and prints it
 *     client hold NAME STAGE        is lent the events of a stage, says which, and handles none
 *     client produce NAME COUNT     publishes COUNT events, and closes
 *
 * NAME is a name in /dev/shm, or a path with a slash. An event's first eight bytes are printed, and
 * a produced event is full of a word made of its position. The program shows the steps; it is no
 * library. It works at rings of events whose stages each see all of them: it refuses others. A
 * reader releases what it has written out, and not before. So a reader that is killed loses
 * nothing: what it had not written comes again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

typedef _Atomic uint64_t word;
typedef _Atomic uint32_t half;

enum { HEAD = 65536, STAGES_AT = 4096, LINE = 128, MAX_RUN = 1 << 15 };
enum { CLAIM_LINE = 0, FIRST_LINE = 3 };
enum { CLOSED = 1, HALTED = 2, FAILED = 4, CLOSING = 8 };
enum { ON_DEATH_WAIT, ON_DEATH_TELL, ON_DEATH_FAIL, ON_DEATH_CLOSE };
#define TOMBSTONE (UINT64_C(1) << 16)
#define CLAIMED (UINT64_C(1) << 17)
#define CLAIMS_CLOSED UINT64_C(1)
enum { SEATED_BITS = 7 };
#define EPOCH (UINT64_C(1) << 32)
#define SLEEPERS UINT64_C(0xFFFFFFFE)
#define LOCKS (INT64_C(1) << 40)

struct header {
    char magic[8];
    uint32_t major, minor;
    uint64_t order, length;
    uint32_t checksum, header_length;
    uint8_t id[16], boot[16];
    uint64_t created;
    uint32_t uid, features, kind, producers;
    uint64_t capacity, first, event_size;
    uint32_t event_align, type_version;
    char type_name[64];
    uint64_t stamps_at, stamps_stride, events_at, events_stride, lines_at;
    uint32_t lines, wait_queues;
    uint64_t wait_queues_at, participants_at;
    uint32_t participants, seats;
    uint64_t seats_at, status_at, counters_at, cells_at, shard_ids_at;
    uint32_t cells, shard_ids, notice_ms, stages, schema_length, producer_on_death;
};
_Static_assert(sizeof(struct header) == 328, "the header has 328 bytes");

struct stage {
    char name[48];
    uint8_t access, delivery, on_death, flags;
    uint32_t room;
    uint64_t after;
    uint32_t line, wait_queue, first_seat, seats, cells, shard_ids, key_offset, key_length;
    uint64_t reserved[4];
};
_Static_assert(sizeof(struct stage) == 128, "a stage has 128 bytes");

struct participant {
    word state;
    half pid, uid;
    word start_time, pid_namespace, joined, flags, name[8];
};

struct seat {
    word owner, state, lo, mid, hi, left, held, boundary, unread, deaths, found_dead;
};

struct failure {
    word state, party, seq, length, text[32];
};

struct queue {
    word word, restless, fenced_notifies, quiet_after, notified_at;
};

static struct header h;
static struct stage stages[64];
static uint64_t capacity, shift;
static unsigned char *base;
static uint32_t self;
static int probe_fd;
static bool always_fences;

/* A reader that fails goes without leaving its seat: its end counts as a death. */
__attribute__((format(printf, 1, 2))) static _Noreturn void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs("client: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    exit(1);
}

/* Writes out what was printed. */
static void flush(void) {
    if (fflush(stdout) != 0 || ferror(stdout))
        fail("the output cannot be written (%s): what is not written comes again", strerror(errno));
}

/* Positions. */

static int64_t ahead(uint64_t one, uint64_t other) { return (int64_t)(one - other); }

static uint64_t lap(uint64_t seq) { return ((seq >> shift) + 1) << 18; }

/* Words. */

static word *line(uint32_t index) { return (word *)(base + h.lines_at + (uint64_t)index * LINE); }
static struct seat *seat(uint32_t i) { return (void *)(base + h.seats_at + (uint64_t)i * LINE); }
static struct queue *queue(uint32_t i) {
    return (void *)(base + h.wait_queues_at + (uint64_t)i * LINE);
}
static struct participant *participant(uint32_t k) {
    return (void *)(base + h.participants_at + (uint64_t)(k - 1) * LINE);
}
static half *bits(void) { return (half *)(base + h.status_at); }
static struct failure *failure(void) { return (void *)(base + h.status_at + LINE); }
static word *final_seq(void) { return (word *)(base + h.status_at + 8); }
static word *stamp(uint64_t seq) {
    return (word *)(base + h.stamps_at + (seq & (capacity - 1)) * h.stamps_stride);
}
static unsigned char *event(uint64_t seq) {
    return base + h.events_at + (seq & (capacity - 1)) * h.events_stride;
}

static uint64_t relaxed(word *at) { return atomic_load_explicit(at, memory_order_relaxed); }
static uint64_t acquire(word *at) { return atomic_load_explicit(at, memory_order_acquire); }
static void store(word *at, uint64_t x) { atomic_store_explicit(at, x, memory_order_relaxed); }
static void release(word *at, uint64_t x) { atomic_store_explicit(at, x, memory_order_release); }
static void fence(void) { atomic_thread_fence(memory_order_seq_cst); }
static void keep_order(void) { atomic_signal_fence(memory_order_seq_cst); }

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void nap(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }

/* Byte locks. */

static bool set_lock(int fd, short kind, uint32_t byte) {
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = LOCKS + byte, .l_len = 1};
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return true;
    if (errno == EAGAIN || errno == EACCES) return false;
    fail("the kernel refuses byte locks");
}

static bool is_held(uint32_t byte) {
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCKS + byte, .l_len = 1};
    if (fcntl(probe_fd, F_OFD_GETLK, &lock) != 0) fail("the kernel refuses to probe a byte lock");
    return lock.l_type != F_UNLCK;
}

static int reopen(int fd, int mode) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int other = open(path, mode | O_CLOEXEC);
    if (other < 0) fail("the file cannot be opened anew");
    return other;
}

/* The head. */

static uint32_t crc(uint32_t crc, const unsigned char *bytes, size_t count) {
    crc = ~crc;
    for (size_t at = 0; at < count; at++) {
        crc ^= bytes[at];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
    }
    return ~crc;
}

/* Reads the number of this boot; zeros: it cannot be read. */
static void boot_id(uint8_t id[16]) {
    memset(id, 0, 16);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    for (int digit = 0; file != NULL && digit < 32;) {
        int c = fgetc(file);
        if (c == EOF) break;
        int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (value < 0) continue;
        id[digit / 2] = (uint8_t)(id[digit / 2] << 4 | value);
        digit++;
    }
    if (file != NULL) fclose(file);
}

/* Checks an area with items: aligned, behind the head, and within the file. */
static void area(uint64_t at, uint64_t bytes, uint64_t align) {
    if (at < HEAD || at % align != 0 || at > h.length || bytes > h.length - at)
        fail("an area lies outside of the file: make the segment anew");
}

/* A file in memory does not outlive a boot. */
static void check_head(const unsigned char *head, uint64_t length, bool in_memory) {
    memcpy(&h, head, sizeof h);
    uint8_t boot[16];
    boot_id(boot);
    if (memcmp(h.magic, "SLIPRING", 8) != 0) fail("it does not begin as a segment: name another");
    if (h.order != UINT64_C(0x0102030405060708)) fail("it has another byte order");
    if (h.major != 1) fail("it has version %u, and this program knows version 1", h.major);
    if (h.header_length < 12288 || h.header_length > HEAD || h.header_length % 8 != 0)
        fail("its header length is damaged: make it anew");
    if (crc(crc(0, head + 8, 24), head + 36, h.header_length - 36) != h.checksum)
        fail("its checksum is wrong: make it anew");
    if (h.features != 0) fail("it uses features that this program does not know: %#x", h.features);
    static const uint8_t unknown[16];
    bool known = memcmp(h.boot, unknown, 16) != 0 && memcmp(boot, unknown, 16) != 0;
    if (known && memcmp(h.boot, boot, 16) != 0) fail("it is of an earlier boot: remove it");
    if (!known && !in_memory) fail("it may be older than the machine's last start: mount /proc");
    if (h.length != length) fail("it does not have the length that it states: make it anew");
    bool power = h.capacity != 0 && (h.capacity & (h.capacity - 1)) == 0;
    bool aligned = h.event_align != 0 && h.event_align <= 4096 &&
                   (h.event_align & (h.event_align - 1)) == 0;
    uint64_t most = UINT64_C(1) << 40;
    if (!power || h.capacity >= most || !aligned || h.event_size == 0 || h.event_size >= most ||
        h.event_size % h.event_align != 0 || h.length > most || h.notice_ms == 0 ||
        h.notice_ms > 1000 || h.producers > 64 || h.stages == 0 || h.stages > 64 ||
        h.participants == 0 || h.participants > 1024 || h.lines > 65536 || h.seats > 65536 ||
        h.wait_queues > 65536)
        fail("a count of its header is out of its range, or it has no ring: make it anew");
    if (h.kind != 0) fail("its kind is %u, and this program knows 0: events of a type", h.kind);
    if (h.producer_on_death > ON_DEATH_CLOSE)
        fail("its `producer_on_death` is %u, and 0 to 3 are known", h.producer_on_death);
    uint64_t at = h.event_align > 8 ? h.event_align : 8;
    uint64_t slot = (at + h.event_size + at - 1) / at * at;
    if (h.stamps_stride != slot || h.events_stride != slot || h.events_at != h.stamps_at + at)
        fail("its stamps do not lie inside of its slots");
    if (slot > h.length / h.capacity) fail("its slots do not fit into the file");
    area(h.stamps_at, slot * h.capacity, 4096);
    area(h.status_at, 512, LINE);
    area(h.participants_at, (uint64_t)h.participants * LINE, LINE);
    area(h.seats_at, (uint64_t)h.seats * LINE, LINE);
    area(h.lines_at, (uint64_t)h.lines * LINE, LINE);
    area(h.wait_queues_at, (uint64_t)h.wait_queues * LINE, LINE);
    capacity = h.capacity;
    shift = (uint64_t)__builtin_ctzll(capacity);
    memcpy(stages, head + STAGES_AT, h.stages * sizeof stages[0]);

    /* The plan of a graph whose stages all see each event. */
    uint32_t queues = 1;
    for (uint32_t i = 0; i < h.stages; i++) {
        struct stage *s = &stages[i];
        if (s->delivery != 0)
            fail("stage %.48s has the delivery %u, and this program knows 0: each event to one "
                 "handle", s->name, s->delivery);
        if (s->access > 1)
            fail("stage %.48s has the access %u, and 0 and 1 are known", s->name, s->access);
        if (s->on_death > ON_DEATH_FAIL)
            fail("stage %.48s has the `on_death` %u, and 0 to 2 are known", s->name, s->on_death);
        if (s->flags != 0) fail("stage %.48s has unknown flags: %#x", s->name, s->flags);
        if (s->room != 1 || s->seats != 1) fail("stage %.48s is damaged: make it anew", s->name);
        uint32_t wanted = queues;
        for (uint32_t j = 0; j < i; j++)
            if (stages[j].after == s->after) wanted = stages[j].wait_queue;
        if (wanted == queues) queues++;
        if (s->line != FIRST_LINE + i || s->first_seat != i || s->wait_queue != wanted ||
            s->after >> i != 0)
            fail("its stage table is not that of its graph: make it anew");
    }
    uint32_t producers = h.producers != 0 ? h.producers : 1;
    if (h.lines != FIRST_LINE + h.stages || h.seats != h.stages + producers ||
        h.wait_queues != queues)
        fail("its counts are not those of its graph: make it anew");
}

/* Waiting and notifying. */

static void futex(struct queue *q, int operation, uint32_t value, struct timespec *limit) {
    uint32_t *halves = (uint32_t *)&q->word;
    uint32_t *epoch = halves + (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 1 : 0);
    syscall(SYS_futex, epoch, operation, value, limit, NULL, 0);
}

static bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

/* Does step 3 of a notification, behind a fence. */
static void wake(struct queue *q) {
    uint64_t seen = relaxed(&q->word), none = 0;
    if ((seen & SLEEPERS) == 0) return;
    atomic_compare_exchange_strong_explicit(&q->notified_at, &none, now(), memory_order_relaxed,
                                            memory_order_relaxed);
    while ((seen & SLEEPERS) != 0) {
        if (atomic_compare_exchange_weak_explicit(&q->word, &seen, (seen + EPOCH) & ~SLEEPERS,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            futex(q, FUTEX_WAKE, INT32_MAX, NULL);
            return;
        }
    }
}

static void notify_all(void) {
    fence();
    for (uint32_t i = 0; i < h.wait_queues; i++) wake(queue(i));
}

/* Notifies the queues of a party: of a stage, or of the producers (`h.stages`). */
static void notify(uint32_t party) {
    bool notifies[65] = {false}, quiet = true;
    uint64_t follows = party == h.stages ? 0 : UINT64_C(1) << party;
    bool gating = party != h.stages;
    for (uint32_t i = 0; i < h.stages; i++) {
        bool is_follower = follows == 0 ? stages[i].after == 0 : (stages[i].after & follows) != 0;
        if (is_follower) notifies[stages[i].wait_queue] = true;
        if (is_follower && follows != 0) gating = false;
    }
    if (gating) notifies[0] = true;
    keep_order();
    for (uint32_t i = 0; i < h.wait_queues; i++)
        if (notifies[i] && (uint32_t)relaxed(&queue(i)->word) != 0) quiet = false;
    if (quiet && !always_fences) return;
    fence();
    for (uint32_t i = 0; i < h.wait_queues; i++)
        if (notifies[i]) wake(queue(i));
}

static void sleep_at(struct queue *q, bool (*ready)(void *), void *context) {
    uint64_t before = atomic_fetch_add_explicit(&q->word, 2, memory_order_relaxed);
    uint32_t noted = (uint32_t)(before >> 32);
    if ((before & 1) == 0) {
        uint64_t began = now();
        if (membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)) {
            uint64_t ended = now(), pause = (ended - began) * 256;
            pause = pause < 1000000 ? 1000000 : pause > 1000000000 ? 1000000000 : pause;
            store(&q->quiet_after, ended + pause);
        } else {
            store(&q->restless, 1);
            nap();
        }
        uint64_t seen = relaxed(&q->word);
        while ((uint32_t)(seen >> 32) == noted &&
               !atomic_compare_exchange_weak_explicit(&q->word, &seen, seen | 1,
                                                      memory_order_relaxed, memory_order_relaxed)) {
        }
    }
    fence();
    if (!ready(context)) {
        struct timespec limit = {h.notice_ms / 1000, (long)(h.notice_ms % 1000) * 1000000};
        store(&q->notified_at, 0);
        futex(q, FUTEX_WAIT, noted, &limit);
    }
    uint64_t seen = relaxed(&q->word);
    while ((uint32_t)(seen >> 32) == noted && (seen & SLEEPERS) != 0 &&
           !atomic_compare_exchange_weak_explicit(&q->word, &seen, seen - 2, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

/* Runs. */

/* Returns the length of the run at `seq`; 0: none begins there. */
static uint64_t run_at(uint64_t seq, bool *live) {
    uint64_t rest = acquire(stamp(seq)) ^ lap(seq);
    *live = rest - 1 < MAX_RUN;
    if (*live) return rest;
    return rest - TOMBSTONE - 1 < MAX_RUN ? rest - TOMBSTONE : 0;
}

static uint64_t frontier(uint32_t stage) { return acquire(line(stages[stage].line)); }

/* Returns the stage with the least frontier of those whose bits are set, and stores it. */
static uint32_t slowest(uint64_t set, uint64_t *least) {
    uint32_t found = h.stages;
    for (uint32_t i = 0; i < h.stages; i++) {
        if ((set >> i & 1) == 0) continue;
        uint64_t own = frontier(i);
        if (found == h.stages || ahead(*least, own) > 0) {
            found = i;
            *least = own;
        }
    }
    return found;
}

/* Returns the least frontier of the stages whose bits are set. */
static uint64_t least(uint64_t set) {
    uint64_t found = 0;
    slowest(set, &found);
    return found;
}

/* Seats. */

static void bury(struct seat *s, uint32_t dead, bool beside_others) {
    uint64_t owner = relaxed(&s->owner), deaths = relaxed(&s->deaths);
    uint64_t generation = owner & ~UINT64_C(0xFFFFFFFF);
    if ((uint32_t)owner != dead) return;
    if (deaths >> 32 != owner >> 32) store(&s->deaths, generation | (uint32_t)(deaths + 1));
    release(&s->owner, beside_others ? generation + EPOCH : generation);
}

static void leave_seat(struct seat *s) {
    release(&s->owner, relaxed(&s->owner) & ~UINT64_C(0xFFFFFFFF));
}

/* Whether a participant is dead. A participant that left frees its seats before its byte. */
static bool is_dead(uint32_t who) {
    if (who == 0 || who > h.participants) return false;
    return (uint32_t)acquire(&participant(who)->state) != 0 && !is_held(who);
}

/* Notes on a seat that its owner is dead. Returns whether it is. */
static bool note_death(struct seat *s) {
    uint64_t owner = acquire(&s->owner);
    if (!is_dead((uint32_t)owner)) return false;
    uint64_t pid = atomic_load_explicit(&participant((uint32_t)owner)->pid, memory_order_relaxed);
    uint64_t found = (owner & ~UINT64_C(0xFFFFFFFF)) | pid, noted = relaxed(&s->found_dead);
    while ((int32_t)(uint32_t)((owner >> 32) - (noted >> 32)) > 0 &&
           !atomic_compare_exchange_weak_explicit(&s->found_dead, &noted, found,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    return true;
}

/* The seats of a party: of a stage, or of the producers (`h.stages`). */
static struct seat *seat_of(uint32_t party, uint32_t number) {
    return seat(party == h.stages ? h.stages + number : stages[party].first_seat + number);
}
static uint32_t seats_of(uint32_t party) {
    return party == h.stages && h.producers > 1 ? h.producers : 1;
}

static uint32_t on_death_of(uint32_t party) {
    return party == h.stages ? h.producer_on_death : stages[party].on_death;
}
static const char *name_of(uint32_t party) {
    return party == h.stages ? "producer" : stages[party].name;
}

/* The end of the stream. */

/* Closes the ring to claims. Returns the claim word. */
static uint64_t close_claims(void) {
    return CLAIMS_CLOSED |
           atomic_fetch_or_explicit(line(CLAIM_LINE), CLAIMS_CLOSED, memory_order_relaxed);
}

static void close_at(uint64_t seq) {
    store(final_seq(), seq);
    atomic_fetch_or_explicit(bits(), CLOSED, memory_order_release);
    notify_all();
}

/* Has one of several producers leave, or a dead one. The last one closes the ring. */
static void begin_to_leave(struct seat *own) {
    bool stays = false;
    store(&own->state, relaxed(&own->owner));
    fence();
    for (uint32_t i = 0; i < h.producers; i++) {
        struct seat *other = seat_of(h.stages, i);
        if (note_death(other)) continue;
        uint64_t owner = acquire(&other->owner);
        /* A process that recovers the owner has noted the death before: the note comes last. */
        if ((uint32_t)owner != 0 && relaxed(&other->state) != owner &&
            acquire(&other->found_dead) >> 32 != owner >> 32)
            stays = true;
    }
    if (stays) return;
    atomic_fetch_or_explicit(bits(), CLOSING, memory_order_relaxed);
    close_claims();
    notify_all();
}

/* Finding the place of a producer. */

/* A position before which all is published, and at which a run begins. */
static uint64_t boundary(void) {
    uint32_t first = 0;
    while (stages[first].after != 0) first++;
    return acquire(&seat(stages[first].first_seat)->boundary);
}

static uint64_t first_unpublished(void) {
    uint64_t from = boundary(), end = from;
    for (;;) {
        bool live;
        uint64_t run = run_at(end, &live);
        if (run == 0 || end - from >= capacity) break;
        end += run;
    }
    return end - from > capacity ? from + capacity : end;
}

/* Whether no producer has stamped the slot for `seq`, or for a later position. */
static bool is_free(uint64_t found, uint64_t seq) {
    int bits_of_lap = shift > 18 ? 64 - (int)shift : 46;
    int64_t laps = (int64_t)((found - lap(seq)) >> 18 << (64 - bits_of_lap));
    return (found & 0x3FFFF) == 0 || laps < 0;
}

/* Recovering the dead. */

/* Gives up what the dead owner of a producers' seat has claimed. */
static void give_up(uint32_t number, struct seat *s) {
    uint64_t claimed = acquire(line(CLAIM_LINE)), lo = acquire(&s->lo), hi = acquire(&s->hi);
    uint64_t heads[2] = {lo, relaxed(&s->mid)};
    bool is_last = (claimed >> 1 & 63) == number &&
                   claimed >> SEATED_BITS == hi << SEATED_BITS >> SEATED_BITS;
    for (int i = 0; i < 2; i++) {
        uint64_t at = heads[i];
        if (hi - at - 1 >= capacity || (i == 1 && ahead(at, lo) <= 0)) continue;
        uint64_t found = acquire(stamp(at));
        if (found != (lap(at) | CLAIMED | number) && !(is_last && is_free(found, at))) continue;
        for (uint64_t seq = hi; seq != at; seq--) {
            uint64_t rest = hi - seq + 1;
            release(stamp(seq - 1), lap(seq - 1) | TOMBSTONE | (rest < MAX_RUN ? rest : MAX_RUN));
        }
        notify(h.stages);
        break;
    }
    release(&s->lo, hi);
}

/* Settles a seat of a dead participant, whose byte the caller holds. */
static void settle_seat(uint32_t index, uint32_t dead) {
    struct seat *s = seat(index);
    if ((uint32_t)acquire(&s->owner) != dead) return;
    bool closes = h.producer_on_death == ON_DEATH_CLOSE, others = false;
    if (index >= h.stages && h.producers > 1) {
        give_up(index - h.stages, s);
        if (closes || relaxed(&s->state) == relaxed(&s->owner)) begin_to_leave(s);
        for (uint32_t i = 0; i < h.producers; i++) {
            uint32_t owner = (uint32_t)acquire(&seat_of(h.stages, i)->owner);
            if (owner != 0 && owner != dead) others = true;
        }
    } else if (index >= h.stages && closes) {
        uint32_t ended = atomic_load_explicit(bits(), memory_order_acquire);
        if ((ended & CLOSED) == 0) close_at(first_unpublished());
    }
    bury(s, dead, others);
}

static void settle(uint32_t dead) {
    for (uint32_t i = 0; i < h.seats; i++) settle_seat(i, dead);
}

static void set_free(uint32_t k) {
    release(&participant(k)->state, relaxed(&participant(k)->state) & ~UINT64_C(0xFFFFFFFF));
}

static void note_deaths_of(uint32_t dead) {
    for (uint32_t i = 0; i < h.seats; i++)
        if ((uint32_t)acquire(&seat(i)->owner) == dead) note_death(seat(i));
}

static void recover(uint32_t dead) {
    note_deaths_of(dead);
    int fd = reopen(probe_fd, O_RDWR);
    if (set_lock(fd, F_WRLCK, dead)) {
        settle(dead);
        set_free(dead);
        set_lock(fd, F_UNLCK, dead);
    }
    close(fd);
}

static bool take(struct seat *s) {
    for (int round = 0; round < 2000; round++) {
        uint64_t owner = relaxed(&s->owner);
        uint32_t who = (uint32_t)owner;
        if (who == 0) {
            if (atomic_compare_exchange_strong_explicit(&s->owner, &owner, owner + EPOCH + self,
                                                        memory_order_acquire, memory_order_relaxed))
                return true;
        } else if (who > h.participants) {
            fail("a seat is damaged: make the segment anew");
        } else if (who == self || is_held(who)) {
            return false;
        } else {
            recover(who);
            nap();
        }
    }
    return false;
}

/* Looking for deaths. */

/* Whether the last owner of a seat has died. */
static bool has_died(struct seat *s) {
    uint64_t owner = acquire(&s->owner);
    if ((uint32_t)owner == 0) return owner != 0 && relaxed(&s->deaths) >> 32 == owner >> 32;
    return is_dead((uint32_t)owner) && acquire(&s->owner) == owner;
}

/* Whether others are told of the death of a party. */
static bool is_told(uint32_t party) {
    if (on_death_of(party) != ON_DEATH_TELL && on_death_of(party) != ON_DEATH_FAIL) return false;
    if (party == h.stages &&
        (atomic_load_explicit(bits(), memory_order_relaxed) & (CLOSING | CLOSED)) != 0)
        return false;
    bool died = false;
    for (uint32_t i = 0; i < seats_of(party); i++) {
        struct seat *s = seat_of(party, i);
        uint64_t owner = acquire(&s->owner);
        if ((uint32_t)owner != 0 && (!is_dead((uint32_t)owner) || relaxed(&s->state) == owner))
            return false;
        if (has_died(s)) died = true;
    }
    return died;
}


static uint64_t gating_stages(void) {
    uint64_t followed = 0;
    for (uint32_t i = 0; i < h.stages; i++) followed |= stages[i].after;
    return ~followed & (h.stages == 64 ? ~UINT64_C(0) : (UINT64_C(1) << h.stages) - 1);
}

/* Fails the graph for all processes. */
static void fail_graph(uint32_t party, uint64_t seq, const char *reason) {
    struct failure *record = failure();
    uint64_t none = 0, begun = 1 | (uint64_t)(party + 1) << 32, text[32] = {0};
    if (atomic_compare_exchange_strong_explicit(&record->state, &none, begun, memory_order_relaxed,
                                                memory_order_relaxed)) {
        memcpy(text, reason, strlen(reason));
        for (int i = 0; i < 32; i++) store(&record->text[i], text[i]);
        store(&record->length, strlen(reason));
        store(&record->party, party + 1);
        store(&record->seq, seq + 1);
        release(&record->state, 2);
    }
    atomic_fetch_or_explicit(bits(), FAILED, memory_order_release);
    notify_all();
}

/* Looks for deaths on behalf of a waiting party, which is at the position `at`. */
static void look_for_deaths(uint32_t party, uint64_t at) {
    uint64_t before = party == h.stages ? gating_stages() : stages[party].after, upstream = 0;
    uint32_t dead = before == 0 ? h.stages : slowest(before, &upstream);
    while (!is_told(dead)) {
        /* If that stage waits for another stage in turn, the other one counts. */
        if (dead == h.stages || stages[dead].after == 0) break;
        uint32_t next = slowest(stages[dead].after, &upstream);
        if (ahead(upstream, frontier(dead)) > 0) break;
        dead = next;
    }
    bool tells = is_told(dead);
    if (tells) at = dead == h.stages ? at : frontier(dead);
    if (h.producers > 1 || h.producer_on_death == ON_DEATH_CLOSE) {
        for (uint32_t i = 0; i < seats_of(h.stages); i++) {
            uint32_t owner = (uint32_t)acquire(&seat_of(h.stages, i)->owner);
            if (owner != self && is_dead(owner)) recover(owner);
        }
    }
    if (!tells) return;
    char reason[64];
    struct seat *s = seat_of(dead, 0);
    note_death(s);
    snprintf(reason, sizeof reason, "process %u died", (uint32_t)relaxed(&s->found_dead));
    if (on_death_of(dead) == ON_DEATH_FAIL) fail_graph(dead, at, reason);
    else fail("%s at the place of %.48s: start another one", reason, name_of(dead));
}

/* Sleeps, and looks for deaths once a notice. */
static void wait_at(uint32_t party, uint64_t at, bool (*ready)(void *), void *context) {
    static uint64_t looked;
    sleep_at(queue(party == h.stages ? 0 : stages[party].wait_queue), ready, context);
    if (!ready(context) && now() - looked >= (uint64_t)h.notice_ms * 1000000) {
        looked = now();
        look_for_deaths(party, at);
    }
}

/* Attaching. */

static uint64_t namespace_of_pids(void) {
    struct stat found;
    return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

static uint64_t start_time(void) {
    char text[1024] = "";
    FILE *file = fopen("/proc/self/stat", "r");
    if (file == NULL) return 0;
    size_t count = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[count] = 0;
    char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++) at = strchr(at + 1, ' ');
    return at == NULL ? 0 : strtoull(at + 1, NULL, 10);
}

static bool try_attach(const char *path) {
    int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (file < 0) fail("the segment cannot be opened: name another");
    struct stat found, named;
    struct statfs system;
    if (fstat(file, &found) != 0 || fstatfs(file, &system) != 0) fail("the file has no state");
    if (!S_ISREG(found.st_mode)) fail("it is no regular file");
    if (system.f_type != 0x01021994 && system.f_type != 0xef53) fail("its file system is refused");
    if (found.st_uid != geteuid() || (found.st_mode & 07777 & ~0600) != 0 || found.st_nlink != 1)
        fail("its owner, mode or number of links is refused");
    static unsigned char head[HEAD];
    if (pread(file, head, HEAD, 0) != HEAD) fail("it is too short for a segment");
    check_head(head, (uint64_t)found.st_size, system.f_type == 0x01021994);

    if (!set_lock(file, F_RDLCK, 0)) {
        close(file);
        return false;
    }
    bool is_named = lstat(path, &named) == 0 && named.st_dev == found.st_dev &&
                    named.st_ino == found.st_ino;
    if (!is_named) {
        close(file);
        return false;
    }
    base = mmap(NULL, h.length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (base == MAP_FAILED) fail("it cannot be mapped");
    if (madvise(base, h.length, MADV_DONTFORK) != 0 || mprotect(base, HEAD, PROT_READ) != 0)
        fail("the mapping cannot be protected");
    madvise(base, h.length, MADV_DONTDUMP);
    probe_fd = reopen(file, O_RDONLY);
    for (int pass = 0; pass < 2 && self == 0; pass++) {
        for (uint32_t k = 1; k <= h.participants && self == 0; k++) {
            if (pass == 1) note_deaths_of(k);
            if (!set_lock(file, F_WRLCK, k)) continue;
            bool is_free = (uint32_t)acquire(&participant(k)->state) == 0;
            if (!is_free && pass == 1) settle(k);
            if (is_free || pass == 1) self = k;
            else set_lock(file, F_UNLCK, k);
        }
    }
    set_lock(file, F_UNLCK, 0);
    close(file);
    if (self == 0) fail("all places of participants are taken");
    if (!is_held(self)) fail("locks do not outlive descriptors on this file system");

    struct participant *own = participant(self);
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    uint64_t name[8] = {0};
    memcpy(name, "client in C", 11);
    atomic_store_explicit(&own->pid, (uint32_t)getpid(), memory_order_relaxed);
    atomic_store_explicit(&own->uid, geteuid(), memory_order_relaxed);
    store(&own->start_time, start_time());
    store(&own->pid_namespace, namespace_of_pids());
    store(&own->joined, (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec);
    store(&own->flags, always_fences ? 0 : 1);
    for (int i = 0; i < 8; i++) store(&own->name[i], name[i]);
    release(&own->state, ((relaxed(&own->state) >> 32) + 1) << 32 | 1);
    madvise(base + HEAD, h.length - HEAD, MADV_POPULATE_WRITE);
    return true;
}

static void attach(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, strchr(name, '/') ? "%s" : "/dev/shm/%s.slipring", name);
    always_fences = !membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
    for (int attempt = 0; attempt < 1000; attempt++) {
        if (try_attach(path)) return;
        nap();
    }
    fail("another process removes the segment, or makes it anew, all the time");
}

static void detach(void) {
    set_free(self);
    munmap(base, h.length);
}

/* Reading. */

struct reader {
    uint32_t number;
    uint64_t next;  /* position of the next event */
    uint64_t known; /* end of what is known to be live or inside of a run */
    uint64_t limit; /* before it, all positions are published, also where a slot has no stamp */
    uint32_t bits;  /* of the status, as they were looked at */
};

static bool has_event(void *context) {
    struct reader *r = context;
    struct stage *s = &stages[r->number];
    bool live;
    if (atomic_load_explicit(bits(), memory_order_acquire) != r->bits) return true;
    if (r->known != r->next) return true;
    if (s->after != 0) return ahead(least(s->after), r->next) > 0;
    return ahead(r->limit, r->next) > 0 || run_at(r->next, &live) != 0;
}

/* Finds events from `next` on, or passes over a tombstone. Returns whether there was anything. */
static bool find(struct reader *r) {
    struct stage *s = &stages[r->number];
    bool live;
    if (s->after != 0) {
        uint64_t upstream = least(s->after);
        if (ahead(upstream, r->limit) > 0) r->limit = upstream;
        if (ahead(r->limit, r->next) <= 0) return false;
        if (h.producers <= 1) {
            r->known = r->limit;
            return true;
        }
    }
    uint64_t run = run_at(r->next, &live);
    uint64_t behind = s->after != 0 ? (uint64_t)ahead(r->limit, r->next) : capacity;
    if (run == 0) {
        /* Inside of a run that began before. */
        if (ahead(r->limit, r->next) <= 0) return false;
        run = 1;
        live = true;
    }
    if (run > behind) run = behind;
    if (live) {
        r->known = r->next + run;
    } else {
        r->next += run;
        r->known = r->next;
    }
    return true;
}

/* Stores what a release stores, once all that was handled is written out. */
static void release_to(struct reader *r, uint64_t end) {
    flush();
    struct seat *own = seat(stages[r->number].first_seat);
    if (ahead(r->known, relaxed(&own->boundary)) > 0) release(&own->boundary, r->known);
    release(line(stages[r->number].line), end);
    notify(r->number);
}

/* Closes a closing ring, if its stream ends at `at`. */
static void look_for_end(uint64_t at) {
    uint64_t word = acquire(line(CLAIM_LINE));
    if ((word & CLAIMS_CLOSED) == 0) word = close_claims();
    if (word >> SEATED_BITS != at << SEATED_BITS >> SEATED_BITS) return; /* a claim is open */
    close_at(at);
}

/* Stops if the ring's bits say that it does not go on. Returns the bits. */
static uint32_t check_bits(uint32_t found) {
    if ((found & ~(uint32_t)(CLOSED | HALTED | FAILED | CLOSING)) != 0)
        fail("its status is damaged: the bits %#x are not known; make it anew", found);
    if ((found & FAILED) != 0) fail("the graph has failed");
    if ((found & HALTED) != 0) fail("the graph was halted");
    return found;
}

/* Is lent events for ever, if `holds`, so that it can be killed with events in its hands. */
static void read_events(const char *stage, bool holds) {
    struct reader r = {.number = 0};
    while (r.number < h.stages && strncmp(stages[r.number].name, stage, 48) != 0) r.number++;
    if (r.number == h.stages) fail("there is no such stage");
    struct seat *own = seat(stages[r.number].first_seat);
    if (!take(own)) fail("another process has the stage");
    uint64_t from = acquire(line(stages[r.number].line)), held = relaxed(&own->held);
    r.next = r.known = r.limit = from;
    if (stages[r.number].after == 0) {
        r.limit = acquire(&own->boundary);
        if (r.limit - from > capacity) fail("its boundary is damaged");
        if (h.producers <= 1) r.known = r.limit;
    }
    if (ahead(held, from) > 0)
        printf("again %" PRIu64 " %" PRIu64 "\n", from, held);
    for (;;) {
        if (r.known == r.next) {
            uint64_t before = r.next;
            r.bits = check_bits(atomic_load_explicit(bits(), memory_order_acquire));
            if (!find(&r)) {
                if ((r.bits & CLOSED) != 0) {
                    if (relaxed(final_seq()) == r.next) break;
                    if (relaxed(final_seq()) - r.next > capacity) fail("its end is damaged");
                    if (stages[r.number].after == 0) continue; /* all is published by now */
                }
                if ((r.bits & CLOSING) != 0 && stages[r.number].after == 0) look_for_end(r.next);
                flush();
                wait_at(r.number, r.next, has_event, &r);
                continue;
            }
            if (r.known - before > capacity) fail("a stamp is damaged");
            if (r.next != before) release_to(&r, r.next); /* a tombstone */
            continue;
        }
        if (ahead(r.known, relaxed(&own->held)) > 0) store(&own->held, r.known);
        keep_order();
        if (holds) {
            printf("holds %" PRIu64 " %" PRIu64 "\n", r.next, r.known);
            flush();
            for (;;) pause();
        }
        for (uint64_t seq = r.next; seq != r.known; seq++) {
            uint64_t first = 0;
            memcpy(&first, event(seq), h.event_size < 8 ? h.event_size : 8);
            printf("%" PRIu64 " %" PRIu64 "\n", seq, first);
        }
        r.next = r.known;
        release_to(&r, r.next);
    }
    leave_seat(own);
}

/* Producing. */

struct producer {
    struct seat *seat;
    uint64_t number;      /* of the seat, among those of the producers */
    uint64_t next, limit; /* of a single producer: the next position, and the end of the room */
    uint64_t gating;      /* bits of the gating stages */
};

static void check_running(void) {
    uint32_t found = check_bits(atomic_load_explicit(bits(), memory_order_relaxed));
    if ((found & (CLOSING | CLOSED)) != 0 && h.producers > 1) {
        close_claims();
        fail("the ring is closed");
    }
}

static bool has_room(void *context) {
    struct producer *p = context;
    return ahead(least(p->gating) + capacity, p->next) >= 1 ||
           atomic_load_explicit(bits(), memory_order_relaxed) != 0;
}

static void wait_for_room(struct producer *p) {
    while (!has_room(p)) wait_at(h.stages, p->next, has_room, p);
    check_running();
}

/* Stamps each slot in the last two laps of a period, and else the run's first one. */
static void publish(uint64_t seq, uint64_t count) {
    uint64_t bits_of_lap = 62 - shift < 44 ? 62 - shift : 44;
    bool refreshes = (~(seq >> shift) & ((UINT64_C(1) << bits_of_lap) - 1)) < 2;
    uint64_t step = refreshes ? 1 : MAX_RUN, runs = (count + step - 1) / step;
    while (runs-- > 0) {
        uint64_t at = seq + runs * step, rest = count - runs * step;
        release(stamp(at), lap(at) | (rest < MAX_RUN ? rest : MAX_RUN));
    }
    notify(h.stages);
}

static void take_over(struct producer *p) {
    uint64_t end = first_unpublished();
    for (uint64_t offset = 1; offset < capacity; offset++) {
        bool live;
        if (run_at(end + offset, &live) != 0) release(stamp(end + offset), 0);
    }
    p->next = p->limit = end;
}

/* Claims one slot of a single producer. */
static uint64_t claim_alone(struct producer *p) {
    check_running();
    while (p->next == p->limit) {
        uint64_t limit = least(p->gating) + capacity;
        if (ahead(limit, p->limit) > 0) p->limit = limit;
        else wait_for_room(p);
    }
    return p->next++;
}

/* Records the claim of a producers' seat that ends at `end`, unless it has ended. */
static void record(uint64_t number, uint64_t end) {
    if (number >= h.producers) fail("the claim word is damaged");
    struct seat *other = seat(h.stages + (uint32_t)number);
    uint64_t lo = acquire(&other->lo), hi = acquire(&other->hi);
    if (hi != end || hi - lo - 1 >= capacity) return;
    uint64_t found = acquire(stamp(lo));
    if (!is_free(found, lo)) return;
    atomic_compare_exchange_strong_explicit(stamp(lo), &found, lap(lo) | CLAIMED | number,
                                            memory_order_relaxed, memory_order_relaxed);
}

/* Claims one slot of one of several producers. */
static uint64_t claim_beside_others(struct producer *p) {
    for (;;) {
        check_running();
        uint64_t word = acquire(line(CLAIM_LINE));
        if ((word & CLAIMS_CLOSED) != 0) fail("the ring is closed");
        int64_t away = (int64_t)(((word >> SEATED_BITS) - p->next) << SEATED_BITS) >> SEATED_BITS;
        if (away < 0) fail("the claim word is damaged");
        p->next += (uint64_t)away;
        if (!has_room(p)) {
            wait_for_room(p);
            continue;
        }
        uint64_t winner = word >> 1 & 63;
        if (winner != p->number) record(winner, p->next);
        release(&p->seat->lo, p->next);
        release(&p->seat->hi, p->next + 1);
        if (atomic_compare_exchange_strong_explicit(
                line(CLAIM_LINE), &word, (p->next + 1) << SEATED_BITS | p->number << 1,
                memory_order_release, memory_order_relaxed))
            return p->next++;
    }
}

/* The seats of dead producers tell of no death any more: this producer has joined them. */
static void forget_deaths(void) {
    for (uint32_t i = 0; i < h.producers; i++) {
        uint64_t owner = relaxed(&seat_of(h.stages, i)->owner);
        if ((uint32_t)owner == 0 && has_died(seat_of(h.stages, i)))
            atomic_compare_exchange_strong_explicit(&seat_of(h.stages, i)->owner, &owner,
                                                    owner + EPOCH, memory_order_relaxed,
                                                    memory_order_relaxed);
    }
}

static void produce(uint64_t count) {
    struct producer p = {.number = 0};
    bool alone = h.producers <= 1;
    p.gating = gating_stages();
    if (atomic_load_explicit(bits(), memory_order_acquire) != 0) fail("the ring is over");
    for (;; p.number++) {
        if (p.number == (alone ? 1 : h.producers)) fail("other processes have all places");
        p.seat = seat(h.stages + (uint32_t)p.number);
        if (take(p.seat)) break;
    }
    if (alone && atomic_load_explicit(bits(), memory_order_acquire) != 0) {
        leave_seat(p.seat);
        fail("the ring is over");
    }
    if (alone) {
        take_over(&p);
    } else {
        forget_deaths();
        p.next = boundary();
    }
    for (uint64_t made = 0; made < count; made++) {
        uint64_t seq = alone ? claim_alone(&p) : claim_beside_others(&p);
        uint64_t value = seq * UINT64_C(0x9E3779B97F4A7C15) + 1;
        for (uint64_t at = 0; at + 8 <= h.event_size; at += 8) memcpy(event(seq) + at, &value, 8);
        publish(seq, 1);
    }
    if (alone) {
        close_at(p.next);
    } else {
        release(&p.seat->lo, relaxed(&p.seat->hi));
        begin_to_leave(p.seat);
    }
    leave_seat(p.seat);
}

static uint64_t number(const char *text) {
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            break;
    if (at == text || *at != 0)
        fail("\"%s\" is no number of events: say digits, below 2^64", text);
    return value;
}

/* Opens each of the descriptors 0 to 2 that is closed: the segment would get its number, and what
 * is printed there would overwrite the header. A write to an output that was closed still fails. */
static void fill_descriptors(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd) _exit(1);
}

int main(int count, char **arguments) {
    fill_descriptors();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of the write */
    bool holds = count == 4 && strcmp(arguments[1], "hold") == 0;
    if (holds || (count == 4 && strcmp(arguments[1], "read") == 0)) {
        attach(arguments[2]);
        read_events(arguments[3], holds);
    } else if (count == 4 && strcmp(arguments[1], "produce") == 0) {
        uint64_t events = number(arguments[3]);
        attach(arguments[2]);
        produce(events);
    } else {
        fail("say `read NAME STAGE`, `hold NAME STAGE` or `produce NAME COUNT`");
    }
    detach();
    flush();
    return 0;
}
