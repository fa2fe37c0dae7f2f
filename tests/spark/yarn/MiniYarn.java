import java.io.File;
import java.io.FileOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;
import org.apache.spark.launcher.InProcessLauncher;
import org.apache.spark.launcher.SparkAppHandle;

/**
* YARN cluster with one node, which runs all programs at the same time in cluster mode.
 *
 * <p>Arguments: a folder that is on the class path, for the cluster's configuration; a Spark properties file; then a
 * name, a primary resource, an argument and settings (lines of KEY=VALUE) for each program. Prints each
 * name with the state that YARN reports.
 */
public final class MiniYarn {
  private MiniYarn() {}

  public static void main(String[] arguments) {
    try {
      run(arguments);
      System.exit(0);
    } catch (Throwable failure) {
      // Exit explicitly, because the cluster's threads would keep the JVM alive.
      failure.printStackTrace();
      System.exit(1);
    }
  }

  private static void run(String[] arguments) throws Exception {
    File site = new File(arguments[0], "yarn-site.xml");
    YarnConfiguration conf = new YarnConfiguration();
    conf.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
    conf.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
    conf.setInt("yarn.nodemanager.resource.memory-mb", 16_384);
    conf.setInt("yarn.nodemanager.resource.cpu-vcores", 32);
    conf.setInt("yarn.scheduler.minimum-allocation-mb", 128);
    conf.set(
        "yarn.resourcemanager.scheduler.class",
        "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler");
    conf.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "100");
    conf.set("yarn.nodemanager.disk-health-checker.min-free-space-per-disk-mb", "0");
    try (MiniYARNCluster cluster = new MiniYARNCluster("endings", 1, 1, 1)) {
      cluster.init(conf);
      cluster.start();
      try (FileOutputStream out = new FileOutputStream(site)) {
        new Configuration(cluster.getConfig()).writeXml(out);
      }
      Map<String, SparkAppHandle> programs = new TreeMap<>();
      for (int i = 2; i < arguments.length; i += 4) {
        InProcessLauncher launcher = new InProcessLauncher();
        launcher.setMaster("yarn").setDeployMode("cluster").setPropertiesFile(arguments[1]);
        launcher.setConf("spark.app.name", arguments[i]);
        Path folder = Files.createDirectories(new File(arguments[0], arguments[i]).toPath());
        launcher.setConf("spark.events.reporter.audit.path", folder.resolve("events.jsonl").toString());
        launcher.setAppResource(arguments[i + 1]).addAppArgs(arguments[i + 2]);
        for (String setting : arguments[i + 3].split("\n")) {
          if (!setting.isEmpty()) {
            launcher.setConf(setting.substring(0, setting.indexOf('=')), setting.substring(setting.indexOf('=') + 1));
          }
        }
        if (arguments[i + 1].endsWith(".jar")) {
          launcher.setMainClass("YarnProgram");
        }
        programs.put(arguments[i], launcher.startApplication());
      }
      for (Map.Entry<String, SparkAppHandle> program : programs.entrySet()) {
        while (!program.getValue().getState().isFinal()) {
          Thread.sleep(50);
        }
        System.out.println("state " + program.getKey() + " " + program.getValue().getState());
      }
    }
  }
}
