package io.sparkevents;

import static io.sparkevents.Checks.is;

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.tools.ToolProvider;
import org.apache.spark.scheduler.SparkListenerInterface;

/** In which of Spark's listener queues we listen, where a Spark is not as Apache's. */
public final class ListenerQueueChecks {
  /** Spark classes with as little in them as a Spark of a vendor might have. */
  private static final class Vendor extends URLClassLoader {
    private final Path classes;

    Vendor(Path folder, String bus) throws Exception {
      super(new URL[] {folder.toUri().toURL(), ListenerQueue.class.getProtectionDomain().getCodeSource().getLocation()});
      classes = folder;
      compile("scheduler", "LiveListenerBus", bus);
      compile(
          "",
          "SparkContext",
          "public final java.util.List<Object> shared = new java.util.ArrayList<>();"
              + "public org.apache.spark.scheduler.LiveListenerBus listenerBus() {"
              + "  return new org.apache.spark.scheduler.LiveListenerBus();"
              + "}"
              + "public void addSparkListener(org.apache.spark.scheduler.SparkListenerInterface one) { shared.add(one); }");
    }

    private void compile(String part, String name, String members) throws Exception {
      String home = part.isEmpty() ? "org.apache.spark" : "org.apache.spark." + part;
      Path source = Files.createDirectories(classes.resolve("source")).resolve(name + ".java");
      Files.writeString(source, "package " + home + "; public class " + name + " {" + members + "}");
      String path = classes + ":" + System.getProperty("java.class.path");
      int failed = ToolProvider.getSystemJavaCompiler().run(null, null, null, "-cp", path, "-d", classes.toString(), source.toString());
      is(failed, 0);
    }

    /** These few, and whatever uses them, from here; all else as ever. */
    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
      if (name.endsWith(".ListenerQueue") || name.endsWith(".SparkContext") || name.endsWith(".LiveListenerBus")) {
        Class<?> known = findLoadedClass(name);
        return known == null ? findClass(name) : known;
      }
      return super.loadClass(name, resolve);
    }
  }

  private static String added(String bus) throws Exception {
    Path folder = Files.createTempDirectory("vendor");
    try (Vendor vendor = new Vendor(folder, bus)) {
      Object context = vendor.loadClass("org.apache.spark.SparkContext").getConstructor().newInstance();
      Class<?> queues = vendor.loadClass("io.sparkevents.ListenerQueue");
      Method add = queues.getDeclaredMethod("add", context.getClass(), SparkListenerInterface.class);
      add.setAccessible(true);
      Method all = queues.getDeclaredMethod("values");
      all.setAccessible(true);
      Object management = ((Object[]) all.invoke(null))[ListenerQueue.MANAGEMENT.ordinal()];
      Object listener =
          Proxy.newProxyInstance(vendor, new Class<?>[] {SparkListenerInterface.class}, (self, method, given) -> null);
      Object chosen = add.invoke(management, context, listener);
      return chosen + " " + ((List<?>) context.getClass().getField("shared").get(context)).size();
    } finally {
      List<Path> made = new ArrayList<>();
      try (Stream<Path> files = Files.walk(folder)) {
        made.addAll(files.collect(Collectors.toList()));
      }
      for (int i = made.size() - 1; i >= 0; i--) {
        Files.delete(made.get(i));
      }
    }
  }

  /** Without that queue, or where it is not to be had, the listener is in the shared one, and says so. */
  public static void checkASparkWithoutThatQueue() throws Exception {
    String takes = "(org.apache.spark.scheduler.SparkListenerInterface one) {}";
    is(added("public void addToManagementQueue" + takes), "MANAGEMENT 0");
    is(added(""), "SHARED 1");
    is(added("public void addToManagementQueue(Object one) {}"), "SHARED 1");
    is(added("private void addToManagementQueue" + takes), "SHARED 1");
  }
}
