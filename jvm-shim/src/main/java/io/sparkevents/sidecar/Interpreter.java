package io.sparkevents.sidecar;

import io.sparkevents.config.Settings;
import java.io.File;
import java.io.IOException;
import java.net.URISyntaxException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.security.CodeSource;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkConf;

/** Candidate Python interpreter for the sidecar, and the setting or place that names it. */
public final class Interpreter {
  /**
   * Program text that the interpreter runs.
   *
   * <p>It appends the jar's own package to the end of {@code sys.path}, so packages of the interpreter win, and removes
   * the working directory: a user's file json.py there must not become part of the sidecar.
   */
  private static final String BOOTSTRAP =
      "import sys\n"
          + "sys.path[:] = [p for p in sys.path if p] + sys.argv[1:2]\n"
          + "try:\n"
          + "    from spark_events.sidecar import main\n"
          + "except BaseException as error:\n"
          + "    import json\n"
          + "    why = '%s: %s' % (type(error).__name__, error)\n"
          + "    print(json.dumps({'kind': 'unusable', 'reason': why}))\n"
          + "    sys.exit(3)\n"
          + "sys.exit(main())\n";

  public final String path;
  final String origin;
  /** Path as messages may show it: a reference is not resolved. */
  private final String shown;

  private Interpreter(String path, String origin) {
    this(path, path, origin);
  }

  private Interpreter(String path, String shown, String origin) {
    this.path = path;
    this.shown = shown;
    this.origin = origin;
  }

  /**
   * Returns the candidates in the order in which the launcher tries them. If the user sets {@code spark.events.python},
   * that interpreter is the only candidate.
   */
  public static List<Interpreter> candidates(
      Settings settings, SparkConf conf, Map<String, String> environment) {
    List<Interpreter> found = new ArrayList<>();
    if (!settings.python.isEmpty()) {
      found.add(new Interpreter(settings.python, settings.pythonAsGiven(), "spark.events.python"));
      return found;
    }
    addDriverPython(found, conf, environment);
    addEnvironmentOfJar(found);
    found.add(new Interpreter("python3", "the PATH"));
    return distinct(found);
  }

  /** Adds the driver's Python in the order in which spark-submit looks for it. */
  private static void addDriverPython(
      List<Interpreter> found, SparkConf conf, Map<String, String> environment) {
    for (String key : new String[] {"spark.pyspark.driver.python", "spark.pyspark.python"}) {
      if (conf.contains(key)) {
        found.add(new Interpreter(conf.get(key), key));
      }
    }
    for (String key : new String[] {"PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"}) {
      String value = environment.get(key);
      if (value != null && !value.isEmpty()) {
        found.add(new Interpreter(value, key));
      }
    }
  }

  /**
   * Adds the Python of the virtual environment that contains the jar:
   * PREFIX/lib/pythonX.Y/site-packages/spark_events/jars.
   */
  private static void addEnvironmentOfJar(List<Interpreter> found) {
    Path root = packageRoot();
    Path versioned = root == null ? null : root.getParent();
    if (versioned == null) {
      return;
    }
    String origin = "the environment of the jar";
    String name = String.valueOf(versioned.getFileName());
    Path prefix = versioned.getParent() == null ? null : versioned.getParent().getParent();
    if (prefix != null && name.startsWith("python")) {
      for (String program : new String[] {name, "python3", "python"}) {
        File candidate = prefix.resolve("bin").resolve(program).toFile();
        if (candidate.canExecute()) {
          found.add(new Interpreter(candidate.getPath(), origin));
          return;
        }
      }
      if (name.length() > "python".length()) {
        found.add(new Interpreter(name, origin));
      }
    }
    File windows = versioned.resolveSibling("Scripts").resolve("python.exe").toFile();
    if (windows.canExecute()) {
      found.add(new Interpreter(windows.getPath(), origin));
    }
  }

  private static List<Interpreter> distinct(List<Interpreter> found) {
    List<Interpreter> distinct = new ArrayList<>();
    for (Interpreter candidate : found) {
      boolean known = false;
      for (Interpreter earlier : distinct) {
        known |= earlier.path.equals(candidate.path);
      }
      if (!known) {
        distinct.add(candidate);
      }
    }
    return distinct;
  }

  /** Returns the folder that contains the package {@code spark_events} with this jar, or null. */
  static Path packageRoot() {
    Path jar = jar();
    if (jar == null || jar.getParent() == null) {
      return null;
    }
    Path folder = jar.getParent().getParent();
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

  /** Returns why this path cannot be a Python interpreter, or null. PYSPARK_DRIVER_PYTHON is often "jupyter". */
  public String objection() {
    String name = new File(path).getName();
    boolean plausible = name.startsWith("python") || name.startsWith("pypy");
    return plausible || origin.equals("spark.events.python") ? null : "not a Python interpreter";
  }

  List<String> command() {
    List<String> command = new ArrayList<>();
    command.add(path);
    command.add("-c");
    command.add(BOOTSTRAP);
    Path root = packageRoot();
    if (root != null) {
      command.add(root.toString());
    }
    return command;
  }

  /** Returns the message of the exception with the path as messages may show it. */
  String describe(IOException noSuchProgram) {
    return String.valueOf(noSuchProgram.getMessage()).replace(path, shown);
  }

  @Override
  public String toString() {
    return shown + " (from " + origin + ")";
  }
}
