package bench

import "time"

// Standard is a scenario that has a letter, so that figures of different days and servers are of the
// same work.
type Standard struct {
	Letter   string
	Title    string
	Scenario Scenario
}

// Standards are the scenarios that docs/benchmarks.md has figures of.
func Standards() []Standard {
	with := func(change func(*Scenario)) Scenario {
		s := DefaultScenario()
		change(&s)
		return s
	}
	const far = Duration(50 * time.Millisecond)
	return []Standard{
		{"a", "one site, no latency", with(func(*Scenario) {})},
		{"b", "100 sites, no latency", with(func(s *Scenario) { s.Domains, s.Hosts = 100, 100 })},
		{"c", "ten sites, replies 50 ms late", with(func(s *Scenario) { s.Domains, s.Hosts, s.Latency = 10, 10, far })},
		{"d", "one site, replies 50 ms late", with(func(s *Scenario) { s.Latency = far })},
		{"e", "1 of 6 messages to 50 recipients, ten sites", with(func(s *Scenario) {
			s.Messages, s.Domains, s.Hosts, s.Recipients, s.BigEvery = 6000, 10, 10, 50, 6
		})},
		{"f", "ten sites, replies 20 ms late, one silent", with(func(s *Scenario) {
			s.Messages, s.Domains, s.Hosts, s.Latency, s.Dead = 40_000, 10, 10, Duration(20*time.Millisecond), 1
		})},
		{"g", "messages of 100 KB, one site", with(func(s *Scenario) { s.Messages, s.Size = 4000, 100_000 })},
		{"h", "100/s, 1 of 4 to 100 recipients, ten sites with PIPELINING, replies 50 ms late", with(func(s *Scenario) {
			s.Messages, s.Rate, s.Domains, s.Hosts, s.Latency, s.NoChunking, s.Recipients, s.BigEvery = 3000, 100, 10,
				10, far, true, 100, 4
		})},
		{"i", "one site by TLS, a new connection after each 100 messages, in and out", with(func(s *Scenario) {
			s.TLS, s.ClientMessages, s.HostMessages = true, 100, 100
		})},
	}
}

// FindStandard gives the scenario of a letter.
func FindStandard(letter string) (Scenario, bool) {
	for _, s := range Standards() {
		if s.Letter == letter {
			return s.Scenario, true
		}
	}
	return Scenario{}, false
}
