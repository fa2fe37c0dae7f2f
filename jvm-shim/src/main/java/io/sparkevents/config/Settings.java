package io.sparkevents.config;

import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;
import scala.Tuple2;

/**
 * The {@code events.*} settings from spark-defaults.conf and from Spark's configuration.
 *
 * <p>spark-submit ignores lines of spark-defaults.conf that do not begin with {@code spark.}, so this class reads the
 * file again. The sidecar gets all values as written and validates every key. The shim itself needs a few keys and
 * parses them leniently, because the sidecar reports what is wrong. Their references are resolved at once, because a
 * later look-up might return another value or block.
 */
public final class Settings {
  /** One setting as the user wrote it. */
  public static final class Setting {
    public final String givenKey;
    public final String value;
    public final String origin;

    Setting(String givenKey, String value, String origin) {
      this.givenKey = givenKey;
      this.value = value;
      this.origin = origin;
    }
  }

  private static final String OWN = "events.";
  private static final String SPARK = "spark.";
  private static final Pattern DURATION = Pattern.compile("(\\d+)\\s*(ms|s|m|min|h|d)");

  private static final Pattern GUARANTEE = Pattern.compile("events\\.reporter\\..*\\.delivery\\.guarantee");
  private static final Pattern SPOOL = Pattern.compile("events\\.reporter\\..*\\.spool\\.directory");
  /** Keys that the shim itself needs, apart from guarantees and spool directories; only these are resolved here. */
  private static final Set<String> NEEDED =
      new HashSet<>(
          Arrays.asList(
              "events.required",
              "events.sidecar.enabled",
              "events.python",
              "events.dispatcher.type",
              "events.dispatcher.queue.size",
              "events.sidecar.restarts.max",
              "events.sidecar.restarts.window",
              "events.dispatcher.sync.timeout",
              "events.shutdown.timeout",
              "events.shutdown.outcome-timeout",
              "events.sidecar.start-timeout",
              "events.sidecar.stall-timeout",
              "events.streaming-jobs.enabled",
              "events.streaming-stages.enabled"));

  private final Map<String, Setting> settings = new TreeMap<>();
  /** Values of the needed keys with their references resolved; null if unresolvable here. */
  private final Map<String, String> resolved = new HashMap<>();
  private final Map<String, String> environment;
  private final String problem;

  private Settings(Map<String, String> environment, String problem) {
    this.environment = environment;
    this.problem = problem;
  }

  public static Settings read(SparkConf conf, Map<String, String> environment) {
    Properties file = new Properties();
    File defaults = defaultsFile(environment);
    String problem = null;
    if (defaults != null && defaults.isFile()) {
      try (Reader reader =
          new InputStreamReader(Files.newInputStream(defaults.toPath()), StandardCharsets.UTF_8)) {
        file.load(reader);
      } catch (IOException | IllegalArgumentException unreadable) {
        problem = "cannot read " + defaults + ": " + unreadable.getMessage();
      }
    }
    Settings settings = new Settings(environment, problem);
    for (String key : file.stringPropertyNames()) {
      if (key.startsWith(OWN)) {
        settings.put(key, key, file.getProperty(key), String.valueOf(defaults));
      }
    }
    for (Tuple2<String, String> entry : conf.getAll()) {
      if (entry._1().startsWith(SPARK + OWN)) {
        String key = entry._1().substring(SPARK.length());
        settings.put(key, entry._1(), entry._2(), "Spark's configuration");
      }
    }
    // Resolved last, so that a setting that another one overrides is not looked up.
    settings.settings.keySet().forEach(settings::resolve);
    return settings;
  }

  private static File defaultsFile(Map<String, String> environment) {
    String folder = environment.get("SPARK_CONF_DIR");
    if (folder != null && !folder.isEmpty()) {
      return new File(folder, "spark-defaults.conf");
    }
    String home = environment.get("SPARK_HOME");
    return home == null || home.isEmpty() ? null : new File(home, "conf/spark-defaults.conf");
  }

  private void put(String key, String givenKey, String value, String origin) {
    settings.put(key, new Setting(givenKey, value.trim(), origin));
  }

  /** Replaces a setting of the application's configuration. */
  public void override(String key, String value, String origin) {
    put(key, key, value, origin);
    resolve(key);
  }

  private void resolve(String key) {
    if (NEEDED.contains(key) || GUARANTEE.matcher(key).matches() || SPOOL.matcher(key).matches()) {
      resolved.put(key, SecretResolver.resolve(settings.get(key).value, environment));
    }
  }

  /** Returns why the settings could not be read, or null. */
  public String problem() {
    return problem;
  }

  public Collection<Setting> all() {
    return settings.values();
  }

  public boolean required() {
    return "true".equals(text("events.required", "false").toLowerCase(Locale.ROOT));
  }

  public boolean sidecarEnabled() {
    return !"false".equals(text("events.sidecar.enabled", "true").toLowerCase(Locale.ROOT));
  }

  public String python() {
    return text("events.python", "");
  }

  /** Returns the same setting as messages may show it, with unresolved references. */
  public String pythonAsGiven() {
    return settings.get("events.python").value;
  }

  public boolean synchronous() {
    String key = "events.dispatcher.type";
    // An unresolvable reference may mean sync: the sidecar names the kinds to wait for once it is ready.
    return settings.containsKey(key) && !"async-queued".equals(resolved.get(key));
  }

  /**
   * Whether a reporter has the guaranteed delivery, whatever the dispatcher's type. True also if that is unknown here;
   * the sidecar decides when it is ready.
   */
  public boolean guaranteesAny() {
    for (String key : resolved.keySet()) {
      if (GUARANTEE.matcher(key).matches() && "guaranteed".equals(text(key, "guaranteed"))) {
        return true;
      }
    }
    return false;
  }

  /** Whether the listener thread may have to wait for answers. */
  public boolean waitsForAny() {
    return synchronous() || guaranteesAny();
  }

  public int queueSize() {
    return Math.max(1, number("events.dispatcher.queue.size", 2048));
  }

  public int mostRestarts() {
    return Math.max(0, number("events.sidecar.restarts.max", 10));
  }

  public long restartsWindowMillis() {
    return millis("events.sidecar.restarts.window", 600_000);
  }

  public long syncTimeoutMillis() {
    return millis("events.dispatcher.sync.timeout", 10_000);
  }

  public long shutdownTimeoutMillis() {
    return millis("events.shutdown.timeout", 10_000);
  }

  public long outcomeTimeoutMillis() {
    return millis("events.shutdown.outcome-timeout", 30_000);
  }

  public long startTimeoutMillis() {
    return millis("events.sidecar.start-timeout", 30_000);
  }

  public long stallTimeoutMillis() {
    return millis("events.sidecar.stall-timeout", 60_000);
  }

  /** Whether successful jobs and stages of micro-batches make events. True also if that is unknown here. */
  public boolean reportsMicroBatches() {
    for (String key : new String[] {"events.streaming-jobs.enabled", "events.streaming-stages.enabled"}) {
      if (settings.containsKey(key) && !"false".equals(text(key, "true").toLowerCase(Locale.ROOT))) {
        return true;
      }
    }
    return false;
  }

  /**
   * Returns the folder for the state that a run leaves to the next one: the first configured spool, or the default
   * spool folder.
   */
  public Path stateFolder() {
    for (Map.Entry<String, String> known : new TreeMap<>(resolved).entrySet()) {
      if (SPOOL.matcher(known.getKey()).matches() && known.getValue() != null) {
        return Paths.get(known.getValue());
      }
    }
    String state = environment.get("XDG_STATE_HOME");
    boolean isGiven = state != null && !state.isEmpty();
    return (isGiven ? Paths.get(state) : Paths.get(System.getProperty("user.home"), ".local", "state")).resolve("spark-events");
  }

  private String text(String key, String otherwise) {
    String value = resolved.get(key);
    return value == null ? otherwise : value;
  }

  private int number(String key, int otherwise) {
    try {
      return Integer.parseInt(text(key, ""));
    } catch (NumberFormatException notGivenOrWrong) {
      return otherwise;
    }
  }

  private long millis(String key, long otherwise) {
    Matcher duration = DURATION.matcher(text(key, ""));
    if (!duration.matches() || duration.group(1).length() > 9) {
      return otherwise;
    }
    long count = Long.parseLong(duration.group(1));
    switch (duration.group(2)) {
      case "ms":
        return count;
      case "s":
        return count * 1_000;
      case "h":
        return count * 3_600_000;
      case "d":
        return count * 86_400_000;
      default:
        return count * 60_000;
    }
  }
}
