// Reads requests from standard input, one a line, and answers each with one line on standard
// output. Between two requests the program blocks and uses no processor time.

#include <cstdlib>
#include <iostream>

#include "queues.hpp"

namespace peers {

// Runs the request's kind of work through one queue.
template <class Q>
std::string run(const Request& request) {
    if (request.kind == "stream") return stream<Q>(request);
    if (request.kind == "busy") return busy<Q>(request);
    if (request.kind == "open") return open_loop<Q>(request);
    if (request.kind == "shape") return pipeline<Q>(request);
    if (request.kind == "round-trip") return round_trip<Q>(request);
    throw std::runtime_error(request.contender + " does no " + request.kind);
}

std::string run_named(const Request& request) {
    const std::string& name = request.contender;
#ifdef HAS_BOOST
    if (name == "boost") return run<Boost>(request);
#endif
#ifdef HAS_READER_WRITER
    if (name == "reader-writer") return run<ReaderWriter>(request);
#endif
#ifdef HAS_CIRCULAR
    if (name == "circular") return run<Circular>(request);
    if (name == "circular-blocking") return pipeline<BlockingCircular>(request);
#endif
#ifdef HAS_CONCURRENT
    if (request.kind == "shape" && request.text("form") == "fan-in") {
        if (name == "concurrent") return fan_in<Concurrent>(request);
        if (name == "concurrent-blocking") return fan_in<BlockingConcurrent>(request);
    }
    if (request.kind == "pool") {
        if (name == "concurrent") return pool<Concurrent>(request, 2);
        if (name == "concurrent-two-threads") return pool<Concurrent>(request, 1);
        if (name == "concurrent-blocking") return pool<BlockingConcurrent>(request, 2);
    }
    if (name == "concurrent") return run<Concurrent>(request);
#endif
#ifdef HAS_RIGTORP
    if (name == "rigtorp") return run<Rigtorp>(request);
#endif
    throw std::runtime_error("no contender is named " + name);
}

// Runs a request, after untimed runs if it is the first of its kind.
std::string answer(const std::string& line) {
    const Request request = Request::parse(line);
    static std::map<std::string, bool> warm;
    if (!warm[request.kind + " " + request.contender]) {
        warm[request.kind + " " + request.contender] = true;
        if (request.number("warm") > 0) run_named(request);
    }
    return run_named(request);
}

}  // namespace peers

int main() {
    std::ios::sync_with_stdio(false);
    for (std::string line; std::getline(std::cin, line);) {
        try {
            std::cout << peers::answer(line) << std::endl;
        } catch (const std::exception& error) {
            std::cout << "error " << error.what() << std::endl;
        }
    }
    return EXIT_SUCCESS;
}
