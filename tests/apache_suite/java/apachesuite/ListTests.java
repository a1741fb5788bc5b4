package apachesuite;

import java.io.File;
import java.lang.reflect.Modifier;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.stream.Collectors;
import org.apache.bookkeeper.test.BookKeeperClusterTestCase;
import org.junit.runner.Description;
import org.junit.runner.Request;

/**
 * Prints the test classes of a jar, a line each: class, {@code cluster} if it starts bookies by way of
 * {@link BookKeeperClusterTestCase} or {@code other}, and the names of its tests; tabs between them.
 */
public final class ListTests {
    private ListTests() {
    }

    public static void main(String[] arguments) throws Exception {
        try (JarFile jar = new JarFile(new File(arguments[0]))) {
            List<String> names = jar.stream().map(JarEntry::getName)
                .filter(name -> name.endsWith(".class") && !name.contains("$"))
                .map(name -> name.substring(0, name.length() - ".class".length()).replace('/', '.'))
                .sorted().collect(Collectors.toList());
            names.forEach(ListTests::print);
        }
        System.exit(0);
    }

    private static void print(String name) {
        Class<?> type;
        try {
            type = Class.forName(name, false, ListTests.class.getClassLoader());
            if (Modifier.isAbstract(type.getModifiers()) || type.isInterface()) {
                return;
            }
        } catch (LinkageError | ClassNotFoundException unusable) {
            return;
        }
        List<String> tests = tests(type);
        if (!tests.isEmpty()) {
            String kind = BookKeeperClusterTestCase.class.isAssignableFrom(type) ? "cluster" : "other";
            System.out.println(name + "\t" + kind + "\t" + String.join("\t", tests));
        }
    }

    private static List<String> tests(Class<?> type) {
        try {
            return leaves(Request.aClass(type).getRunner().getDescription());
        } catch (LinkageError needsMore) {
            return List.of();
        }
    }

    private static List<String> leaves(Description description) {
        if (description.isTest()) {
            String method = description.getMethodName();
            boolean broken = method == null || method.equals("initializationError");
            return broken ? List.of() : List.of(method);
        }
        return description.getChildren().stream().flatMap(one -> leaves(one).stream()).collect(Collectors.toList());
    }
}
