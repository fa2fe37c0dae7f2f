package io.sparkevents.sidecar;

import io.sparkevents.config.Settings;
import java.io.File;
import java.io.IOException;
import java.net.URISyntaxException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.security.CodeSource;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkConf;

/** Candidate Python interpreter for the sidecar, and the setting or place that names it. */
public final class Interpreter {
  /**
   * Program that the interpreter runs.
   *
   * <p>The program appends the package beside the jar to the end of {@code sys.path}, so that the interpreter's own
   * packages take precedence. It removes the working directory from the path, because the sidecar must not import a
   * user's file such as json.py.
   */
  private static final String BOOTSTRAP =
      "import sys\n"
          + "sys.path[:] = [p for p in sys.path + sys.argv[1:2] if p]\n"
          + "try:\n"
          + "    from spark_events.sidecar.main import main\n"
          + "except BaseException as error:\n"
          + "    import json\n"
          + "    why = '%s: %s' % (type(error).__name__, error)\n"
          + "    print(json.dumps({'kind': 'unusable', 'reason': why}))\n"
          + "    sys.exit(3)\n"
          + "sys.exit(main())\n";
  private static final String USERS_CHOICE = "spark.events.python";

  public final String path;
  private final String origin;
  /** Path for use in messages, with unresolved references. */
  private final String shown;

  private Interpreter(String path, String shown, String origin) {
    this.path = path;
    this.shown = shown;
    this.origin = origin;
  }

  /**
   * Returns the candidates in the order in which the launcher tries them. If the user sets {@code spark.events.python},
   * that interpreter is the only candidate.
   */
  public static List<Interpreter> candidates(Settings settings, SparkConf conf, Map<String, String> environment) {
    if (!settings.python.isEmpty()) {
      return Collections.singletonList(new Interpreter(settings.python, settings.given.asWritten("events.python"), USERS_CHOICE));
    }
    // The driver's Python comes first, in the order in which spark-submit looks for it. The map contains the origin of
    // each path.
    Map<String, String> found = new LinkedHashMap<>();
    for (String key : new String[] {"spark.pyspark.driver.python", "spark.pyspark.python"}) {
      found.putIfAbsent(conf.get(key, ""), key);
    }
    for (String key : new String[] {"PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"}) {
      found.putIfAbsent(environment.getOrDefault(key, ""), key);
    }
    found.putIfAbsent(pythonOfJar(), "the environment of the jar");
    found.putIfAbsent("python3", "the PATH");
    found.remove("");
    List<Interpreter> candidates = new ArrayList<>();
    found.forEach((path, origin) -> candidates.add(new Interpreter(path, path, origin)));
    return candidates;
  }

  /**
   * Returns the Python of the virtual environment that contains the jar:
   * PREFIX/lib/pythonX.Y/site-packages/spark_events/jars; empty if there is none.
   */
  private static String pythonOfJar() {
    Path root = packageRoot();
    Path versioned = root == null ? null : root.getParent();
    String name = versioned == null ? "" : String.valueOf(versioned.getFileName());
    if (!name.startsWith("python")) {
      return "";
    }
    for (String program : new String[] {name, "python3", "python"}) {
      File candidate = versioned.resolve("../../bin").normalize().resolve(program).toFile();
      if (candidate.canExecute()) {
        return candidate.getPath();
      }
    }
    // Use the system's python3, because "python" may be Python 2.
    return name.equals("python") ? "" : name;
  }

  /** Returns the folder that contains the package {@code spark_events} with this jar, or null. */
  static Path packageRoot() {
    Path jar = jar();
    Path folder = jar == null || jar.getParent() == null ? null : jar.getParent().getParent();
    return folder != null && folder.resolve("__init__.py").toFile().isFile() ? folder.getParent() : null;
  }

  static Path jar() {
    try {
      CodeSource source = Interpreter.class.getProtectionDomain().getCodeSource();
      return source == null ? null : Paths.get(source.getLocation().toURI()).toAbsolutePath();
    } catch (URISyntaxException | RuntimeException nowhere) {
      return null;
    }
  }

  /**
   * Returns the reason why this path cannot be a Python interpreter, or null. PYSPARK_DRIVER_PYTHON is often "jupyter".
   */
  public String objection() {
    String name = new File(path).getName();
    boolean plausible = name.startsWith("python") || name.startsWith("pypy");
    return plausible || origin.equals(USERS_CHOICE) ? null : "not a Python interpreter";
  }

  List<String> command() {
    Path root = packageRoot();
    return Arrays.asList(path, "-c", BOOTSTRAP, root == null ? "" : root.toString());
  }

  /** Returns the exception's message, with the interpreter's path in the form that messages may contain. */
  String describe(IOException noSuchProgram) {
    return String.valueOf(noSuchProgram.getMessage()).replace(path, shown);
  }

  @Override
  public String toString() {
    return shown + " (from " + origin + ")";
  }
}
