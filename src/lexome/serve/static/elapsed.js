// The time that a request takes, for those who wait for it.

/** Call `show("3 s")` each second, at once with "", until the function that is returned is called. */
export function showElapsed(show) {
  const start = performance.now();
  show("");
  const timer = setInterval(() => {
    const seconds = Math.round((performance.now() - start) / 1000);
    show(seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`);
  }, 1000);
  return () => clearInterval(timer);
}
