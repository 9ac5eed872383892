package slipring.peers;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;

/**
 * Reads requests from standard input, one a line, and answers each with one line on standard
 * output. Between two requests the program blocks and uses no processor time.
 *
 * <p>The only argument is the directory of Maven's output.
 *
 * <p>Each pair of a contender and a kind of work has a class loader of its own, which loads the
 * contender's library, too. So the pairs share no compiled code and no type profiles: a call that
 * has one target in a user's program has one target here. It is also what lets two versions of one
 * library stand side by side.
 */
public final class Main {
    /** Time that the compiler must be idle before a run is timed, in milliseconds. */
    private static final long IDLE_MS = 30;

    private final Path modules;
    private final Map<String, Contender> contenders = new HashMap<>();
    /** Lines of the requests that had their untimed runs. */
    private final Set<String> warm = new HashSet<>();

    private Main(Path modules) {
        this.modules = modules;
    }

    public static void main(String[] args) throws IOException {
        Main main = new Main(Path.of(args[0]));
        PrintStream answers = System.out;
        // A library that prints would break the protocol.
        System.setOut(System.err);
        BufferedReader requests =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(main.answer(line));
            answers.flush();
        }
    }

    private String answer(String line) {
        try {
            Request request = Request.parse(line);
            Contender contender = contender(request);
            if (warm.add(line)) {
                warmUp(contender, request);
            }
            // Collected now, so that no collection falls into the run.
            System.gc();
            return contender.run(request);
        } catch (Throwable error) {
            error.printStackTrace();
            return "error " + String.valueOf(error).replace('\n', ' ');
        }
    }

    /** Runs the request untimed, so that the timed run is compiled code. */
    private static void warmUp(Contender contender, Request request) throws Exception {
        long end = System.nanoTime() + 1_000_000L * request.number("warm_ms");
        long runs = request.number("warm");
        for (long run = 0; run < runs && System.nanoTime() < end; run++) {
            contender.run(request);
        }
        CompilationMXBean compiler = ManagementFactory.getCompilationMXBean();
        if (runs == 0 || !compiler.isCompilationTimeMonitoringSupported()) {
            return;
        }
        for (int tries = 0; tries < 20; tries++) {
            long before = compiler.getTotalCompilationTime();
            Thread.sleep(IDLE_MS);
            if (compiler.getTotalCompilationTime() == before) {
                return;
            }
        }
    }

    private Contender contender(Request request) throws Exception {
        String key = request.kind() + " " + request.contender() + " " + request.batched();
        Contender known = contenders.get(key);
        if (known != null) {
            return known;
        }
        boolean pool = request.contender().startsWith("lmax3");
        String module = pool ? "worker-pool" : "rings";
        String entry = pool ? "workerpool.WorkerPools" : "rings.Rings";
        ClassLoader loader = new URLClassLoader(classPath(module), Main.class.getClassLoader());
        Contender made =
                loader.loadClass("slipring.peers." + entry)
                        .asSubclass(Contender.Factory.class)
                        .getDeclaredConstructor()
                        .newInstance()
                        .make(request);
        contenders.put(key, made);
        return made;
    }

    /** Returns the jar of a module and its libraries. */
    private URL[] classPath(String module) throws IOException {
        List<URL> jars = new ArrayList<>();
        jars.add(url(modules.resolve(module).resolve(module + ".jar")));
        try (Stream<Path> libraries = Files.list(modules.resolve(module).resolve("lib"))) {
            for (Path library : libraries.sorted().toList()) {
                jars.add(url(library));
            }
        }
        return jars.toArray(new URL[0]);
    }

    private static URL url(Path path) throws MalformedURLException {
        return path.toUri().toURL();
    }
}
