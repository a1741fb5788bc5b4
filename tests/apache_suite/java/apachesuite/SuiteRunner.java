package apachesuite;

import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs the tests of one class, and writes a line for each when it begins and when it ends: test, result, milliseconds, first
 * line of what failed, with tabs between them.
 *
 * <p>Arguments: the file for these lines, the class, the tests to run with commas between them, and those of them that are not
 * to be run again. The name of a method holds for all its parameters. Ends when its input does: then nobody wants the results.
 */
public final class SuiteRunner {
    private SuiteRunner() {
    }

    public static void main(String[] arguments) throws Exception {
        Set<String> wanted = Set.of(arguments[2].split(","));
        Set<String> ended = Arrays.stream(arguments).skip(3).collect(Collectors.toSet());
        Filter filter = new Filter() {
            @Override
            public boolean shouldRun(Description test) {
                if (test.isSuite()) {
                    return test.getChildren().stream().anyMatch(this::shouldRun);
                }
                boolean named = wanted.contains(name(test)) || wanted.contains(method(test));
                return named && !ended.contains(name(test));
            }

            @Override
            public String describe() {
                return wanted + " without " + ended;
            }
        };
        endWithInput();
        Request request = Request.aClass(Class.forName(arguments[1])).filterWith(filter);
        try (Lines lines = new Lines(Path.of(arguments[0]))) {
            JUnitCore core = new JUnitCore();
            core.addListener(lines);
            core.run(request);
        }
        // Tests leave threads behind that are no daemons.
        System.exit(0);
    }

    private static void endWithInput() {
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException broken) {
                // As good as the end.
            }
            Runtime.getRuntime().halt(1);
        });
        watcher.setDaemon(true);
        watcher.start();
    }

    private static String name(Description test) {
        return test.getMethodName() == null ? "(class)" : test.getMethodName();
    }

    private static String method(Description test) {
        return name(test).replaceFirst("\\[.*", "");
    }

    private static final class Lines extends RunListener implements AutoCloseable {
        private final PrintWriter output;
        private final Map<Description, Long> started = new HashMap<>();
        private final Map<Description, Failure> failures = new HashMap<>();

        Lines(Path file) throws Exception {
            output = new PrintWriter(Files.newBufferedWriter(file));
        }

        @Override
        public synchronized void testStarted(Description test) {
            started.put(test, System.nanoTime());
            write(test, "BEGUN", 0, null);
            System.out.println("=== " + test.getDisplayName());
        }

        @Override
        public synchronized void testFailure(Failure failure) {
            System.out.println("--- failed: " + failure.getDescription().getDisplayName() + "\n" + failure.getTrace());
            if (started.containsKey(failure.getDescription())) {
                failures.putIfAbsent(failure.getDescription(), failure);
            } else {
                write(failure.getDescription(), "FAILED", 0, failure);
            }
        }

        @Override
        public synchronized void testAssumptionFailure(Failure failure) {
            started.remove(failure.getDescription());
            write(failure.getDescription(), "SKIPPED", 0, failure);
        }

        @Override
        public synchronized void testIgnored(Description test) {
            write(test, "SKIPPED", 0, null);
        }

        @Override
        public synchronized void testFinished(Description test) {
            Long begun = started.remove(test);
            if (begun != null) {
                Failure failure = failures.remove(test);
                long ms = (System.nanoTime() - begun) / 1_000_000;
                write(test, failure == null ? "PASSED" : "FAILED", ms, failure);
            }
        }

        @Override
        public void close() {
            output.close();
        }

        private void write(Description test, String result, long ms, Failure failure) {
            output.println(String.join("\t", clean(name(test)), result, Long.toString(ms), firstLine(failure)));
            output.flush();
        }

        private static String firstLine(Failure failure) {
            if (failure == null) {
                return "";
            }
            String text = String.valueOf(failure.getException()).strip();
            return clean(text.lines().findFirst().orElse(""));
        }

        private static String clean(String text) {
            return text.replace('\t', ' ').replace('\n', ' ');
        }
    }
}
