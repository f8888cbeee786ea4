// Runs before the first paint, so that the page does not flash in the wrong theme, or with times of the wrong zone.
try {
  const theme = localStorage.getItem("mainspring.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* private window: use the system theme */ }

// The server writes all times in the zone of this cookie: the browser's own, or UTC if the reader chose that.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("mainspring.zone"); } catch { /* private window: the browser's zone */ }
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const wanted = chosen === "utc" ? "UTC" : own;
  const cookie = `mainspring_zone=${encodeURIComponent(wanted)}`;
  const sent = document.cookie.split("; ").find((part) => part.startsWith("mainspring_zone=")) ?? "mainspring_zone=UTC";
  document.cookie = `${cookie}; path=/; max-age=31536000; samesite=lax`;
  // Once: if the browser keeps no cookie, or the server does not know the zone, times stay in the server's choice.
  if (sent !== cookie && document.cookie.includes(cookie)) location.reload();
})();
