import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;

/** Listener of a user that delays the application's end for the listeners that follow it. */
public final class SlowListener extends SparkListener {
  @Override
  public void onApplicationEnd(SparkListenerApplicationEnd event) {
    try {
      Thread.sleep(2_000);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }
}
