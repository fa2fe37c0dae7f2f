package io.sparkevents;

import static io.sparkevents.Checks.is;
import static io.sparkevents.SidecarTest.SILENT;
import static io.sparkevents.SidecarTest.SLOW;
import static io.sparkevents.SidecarTest.await;
import static io.sparkevents.SidecarTest.withDouble;

import io.sparkevents.listener.BusEvent;
import io.sparkevents.sidecar.Connection;
import io.sparkevents.sidecar.Connections;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.apache.spark.launcher.JavaModuleOptions;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.junit.jupiter.api.Test;

/** Tests of an application's connection to its sidecar, from the start of the connection to the application's end. */
final class ConnectionTest {
  private static SparkConf conf(Path script) {
    return new SparkConf(false).set("spark.events.python", script.toString());
  }

  private static String kinds(List<String> diary) {
    StringBuilder kinds = new StringBuilder();
    for (String line : diary) {
      kinds.append(line.replaceAll(".*\"kind\":\"(\\w+)\".*", "$1")).append(' ');
    }
    return kinds.toString().trim();
  }

  /**
   * A new context ends the sidecar of an earlier context whose end Spark did not report. The outcome of the earlier
   * application is UNKNOWN.
   */
  @Test
  void aNewContextEndsThePreviousSidecar() throws Exception {
    withDouble(
        first -> withDouble(
            second -> withDouble(
                third -> {
                  Connection before = Connections.open(conf(first));
                  before.queue.offer(RestoreStateTest.application());
                  await(first, "application_start");
                  Connection unused = Connections.open(conf(second)); // the application never creates the context of this connection
                  List<String> received = await(first, "goodbye");
                  is(kinds(received), "start application_start application_end goodbye");
                  is(received.get(2).contains("\"ending\":\"UNKNOWN\""), true);
                  await(second, "start");
                  SparkConf conf = conf(third);
                  Connection last = Connections.open(conf);
                  is(Connections.open(conf), null);
                  is(kinds(await(second, "goodbye")), "start goodbye");
                  await(third, "start");
                  last.close();
                  is(kinds(await(third, "goodbye")), "start goodbye");
                  is(before.queue.drops.total() + unused.queue.drops.total() + last.queue.drops.total(), 0);
                })));
  }

  /** Application that creates a second listener with a copy of its configuration. */
  public static final class ListensTwice {
    public static void main(String[] script) {
      SparkConf conf = conf(Paths.get(script[0])).setMaster("local[1]").setAppName("twice");
      conf.set("spark.ui.enabled", "false").set("spark.extraListeners", EventsListener.class.getName());
      SparkContext context = new SparkContext(conf.set("spark.events.shutdown.outcome-timeout", "0ms"));
      new EventsListener(context.getConf());
      context.stop();
    }
  }

  /** Program that stops its first context, creates a second context, and fails. */
  public static final class StopsTwice {
    public static void main(String[] scripts) {
      for (String script : scripts) {
        SparkConf conf = conf(Paths.get(script)).setMaster("local[1]").setAppName("twice");
        conf.set("spark.ui.enabled", "false").set("spark.extraListeners", EventsListener.class.getName());
        new SparkContext(conf.set("spark.events.shutdown.outcome-timeout", "1h")).stop();
      }
      throw new IllegalStateException("behind stop");
    }
  }

  /** The next context settles a stopped application's outcome. The JVM's exit settles the last outcome. */
  @Test
  void aStoppedApplicationIsHeldUntilItsOutcomeIsKnown() throws Exception {
    withDouble(
        first -> withDouble(
            second -> {
              String[] options = JavaModuleOptions.defaultModuleOptions().split(" ");
              java(StopsTwice.class, options, first.toString(), second.toString());
              List<String> stopped = await(first, "goodbye");
              List<String> failed = await(second, "goodbye");
              String kinds = "start application_start application_totals application_end application_end";
              is(kinds(stopped), kinds + " goodbye");
              is(kinds(failed.subList(0, 5)), kinds);
              is(stopped.get(3).contains("\"provisional\":true"), true);
              is(stopped.get(4).contains("\"ending\":\"STOPPED\""), true);
              is(stopped.get(4).contains("\"provisional\":true"), false);
              is(failed.get(4).contains("\"ending\":\"UNCAUGHT_EXCEPTION\""), true);
              is(failed.get(4).contains("\"stopped_before\":true"), true);
              is(failed.get(4).contains("behind stop"), true);
            }));
  }

  /** Runs an application in a JVM with Spark's module options, and returns its output. */
  private static String spark(Class<?> application, Path script) throws Exception {
    return java(application, JavaModuleOptions.defaultModuleOptions().split(" "), script.toString());
  }

  /** Plugin that fails at the end of the SparkContext's constructor. */
  public static final class FailsLate implements SparkPlugin {
    @Override
    public DriverPlugin driverPlugin() {
      return new DriverPlugin() {
        @Override
        public void registerMetrics(String application, PluginContext context) {
          throw new IllegalStateException("plugin fails");
        }
      };
    }

    @Override
    public ExecutorPlugin executorPlugin() {
      return null;
    }

    public static void main(String[] script) {
      SparkConf conf = conf(Paths.get(script[0])).setMaster("local[1]").setAppName("fails late");
      conf.set("spark.ui.enabled", "false").set("spark.extraListeners", EventsListener.class.getName());
      conf.set("spark.events.shutdown.outcome-timeout", "0ms").set("spark.plugins", FailsLate.class.getName());
      try {
        SparkContext.getOrCreate(conf);
      } catch (IllegalStateException failure) {
        System.out.println(failure.getMessage());
      }
    }
  }

  /** A constructor that fails while {@code getOrCreate} holds Spark's lock does not wait forever for the listener. */
  @Test
  void aFailedContextDoesNotHang() throws Exception {
    withDouble(
        script -> {
          is(spark(FailsLate.class, script), "plugin fails");
          is(kinds(await(script, "goodbye")), "start application_start application_totals application_end goodbye");
        });
  }

  /** Application that adds the listener after its start. */
  public static final class ListensLate {
    public static void main(String[] script) {
      SparkConf conf = conf(Paths.get(script[0])).setMaster("local[1]").setAppName("late").set("spark.ui.enabled", "false");
      SparkContext context = new SparkContext(conf.set("spark.events.shutdown.outcome-timeout", "0ms"));
      context.addSparkListener(new EventsListener(context.getConf()));
      context.stop();
      System.out.println(context.applicationId());
    }
  }

  /** A listener that is added to a running application knows the application. */
  @Test
  void aLateListenerKnowsItsApplication() throws Exception {
    withDouble(
        script -> {
          String id = spark(ListensLate.class, script);
          List<String> received = await(script, "goodbye");
          is(kinds(received), "start application_start application_totals application_end goodbye");
          is(received.get(1).startsWith("{\"kind\":\"restored\""), true);
          is(received.get(1).contains("\"app_id\":\"" + id + "\",\"app_name\":\"late\""), true);
        });
  }

  /** Listener that stops the bus at the end of a task until 100 events are dropped, with its application. */
  public static final class DropsEvents extends SparkListener {
    @Override
    public void onTaskEnd(SparkListenerTaskEnd event) {
      while (dropped(BusEvent.activeContext()) < 100) {
        Thread.onSpinWait();
      }
    }

    private static long dropped(SparkContext context) {
      return context.listenerBus().metrics().metricRegistry().getCounters().get("queue.shared.numDroppedEvents").getCount();
    }

    public static void main(String[] script) throws Exception {
      SparkConf conf = conf(Paths.get(script[0])).setMaster("local[1]").setAppName("drops");
      conf.set("spark.ui.enabled", "false").set("spark.scheduler.listenerbus.eventqueue.shared.capacity", "10");
      conf.set("spark.extraListeners", EventsListener.class.getName() + "," + DropsEvents.class.getName());
      SparkContext context = new SparkContext(conf.set("spark.events.shutdown.outcome-timeout", "0ms"));
      new JavaSparkContext(context).parallelize(Arrays.asList(1), 100).count();
      context.listenerBus().waitUntilEmpty(); // so that Spark does not drop the application's end
      context.stop();
      System.out.println(dropped(context));
    }
  }

  /** All drops of Spark's bus are reported before the end of an application that is shorter than the first interval. */
  @Test
  void aShortApplicationReportsTheDropsOfTheBus() throws Exception {
    withDouble(
        script -> {
          String dropped = spark(DropsEvents.class, script);
          List<String> received = await(script, "goodbye");
          is(kinds(received).endsWith(" application_end goodbye"), true);
          long reported = 0;
          for (String line : received) {
            boolean isReport = line.contains("\"spark-listener-queue\"");
            reported += isReport ? Long.parseLong(line.replaceAll(".*\"event\":(\\d+).*", "$1")) : 0;
          }
          is(reported, dropped);
        });
  }

  /** A second listener does not end the connection of the first. */
  @Test
  void aSecondListenerEndsNothing() throws Exception {
    withDouble(
        script -> {
          java(ListensTwice.class, JavaModuleOptions.defaultModuleOptions().split(" "), script.toString());
          is(kinds(await(script, "goodbye")), "start application_start application_totals application_end goodbye");
        });
  }

  /** Application that stops while most of its events are still queued in the listener bus. */
  public static final class StopsInTheMiddle {
    public static void main(String[] script) {
      SparkConf conf = conf(Paths.get(script[0])).setMaster("local[1]").setAppName("in the middle");
      conf.set("spark.ui.enabled", "false").set("spark.extraListeners", EventsListener.class.getName());
      conf.set("spark.events.shutdown.timeout", "2s").set("spark.events.dispatcher.sync.timeout", "30s");
      SparkContext context = new SparkContext(conf);
      for (int i = 0; i < 100; i++) {
        Events.builder("checks", "Happened").add();
      }
      long began = System.nanoTime();
      context.stop();
      System.out.println(TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - began));
    }
  }

  private static void theEndIsInTimeWith(String sidecar) throws Exception {
    withDouble(
        sidecar,
        script -> {
          String took = java(StopsInTheMiddle.class, JavaModuleOptions.defaultModuleOptions().split(" "), script.toString());
          is(Integer.parseInt(took) < 15, true);
        });
  }

  /** With a slow reporter, the shutdown does not wait 25 s for individual records in Spark's queue. */
  @Test
  void theEndDoesNotWaitForEachRecord() throws Exception {
    theEndIsInTimeWith(SLOW);
  }

  /** The application exits in time, even if its shutdown begins while the driver waits for a missing answer. */
  @Test
  void theEndDoesNotWaitForALateAnswer() throws Exception {
    theEndIsInTimeWith(SILENT);
  }

  /** Runs a class in a separate JVM and returns its output. */
  private static String java(Class<?> main, String[] options, String... arguments) throws Exception {
    List<String> command = new ArrayList<>();
    command.add(System.getProperty("java.home") + "/bin/java");
    command.addAll(Arrays.asList(options));
    command.add(main.getName());
    command.addAll(Arrays.asList(arguments));
    ProcessBuilder java = new ProcessBuilder(command);
    java.environment().put("CLASSPATH", System.getProperty("java.class.path"));
    Process process = java.redirectError(ProcessBuilder.Redirect.INHERIT).start();
    CompletableFuture.delayedExecutor(60, TimeUnit.SECONDS).execute(process::destroyForcibly);
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    is(process.waitFor(60, TimeUnit.SECONDS), true);
    return output.trim();
  }

  /** A thread that is interrupted while it waits for the start keeps its interrupt flag. */
  @Test
  void theInterruptFlagIsKept() {
    Thread.currentThread().interrupt();
    try {
      Connections.open(conf(Paths.get("/nowhere/python")).set("spark.events.required", "true"));
      throw new AssertionError("it was opened");
    } catch (IllegalStateException required) {
      is(Thread.interrupted(), true);
    } finally {
      Thread.interrupted();
    }
  }

  /** Program that opens a connection during JVM shutdown, when no hook can be added. */
  public static final class AtShutdown {
    public static void main(String[] none) {
      SparkConf conf = new SparkConf(false).set("spark.events.python", "/nowhere/python");
      Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("opened " + Connections.open(conf))));
    }
  }

  /** A failed start returns no connection. */
  @Test
  void aFailedStartOpensNothing() throws Exception {
    is(java(AtShutdown.class, new String[0]), "opened null");
  }
}
