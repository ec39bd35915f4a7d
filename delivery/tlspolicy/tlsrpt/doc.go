// Package tlsrpt reports to domains how TLS with their hosts went (SMTP TLS Reporting, RFC 8460): it counts
// the results of connection attempts by policy domain and day of UTC, and sends each domain that asks
// for it in the DNS a report about the day before, by mail or HTTPS.
//
// In the order of use: [Reporter.Record] counts, within bounds and without blocking; [Reporter.Run] saves
// what was counted, and sends reports whose time has come; [Reporter.Days] shows both.
//
// Run is the package's one long-lived goroutine; it has another one while reports are sent. Its context
// stops both, and who started it waits for it.
package tlsrpt
