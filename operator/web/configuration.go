package web

// configurationPage is the configuration in force, and what a reload would change.
type configurationPage struct {
	File    string // "": the built-in defaults
	Text    string
	Changes []string // the file differs by these, and a reload brings them into force
	Restart []string // these take a restart
	Fault   string   // why the file can't be loaded
}

func configuration(r *request) (any, error) {
	s, err := r.relay.Status(r.ctx)
	if err != nil {
		return nil, err
	}
	p := configurationPage{File: s.Config}
	if p.Text, err = r.relay.EffectiveConfig(r.ctx); err != nil {
		return nil, err
	}
	diff, err := r.relay.ConfigChanges(r.ctx)
	if err != nil {
		if relayGone(err) {
			return nil, err
		}
		p.Fault = err.Error()
	}
	p.Changes, p.Restart = diff.Changes, diff.Restart
	return p, nil
}

func reload(r *request, try Try) (Outcome, error) {
	done, err := r.relay.Reload(r.ctx, try.intent())
	out := Outcome{Count: done.Count, Lines: done.Changes}
	for _, c := range done.Restart {
		out.Lines = append(out.Lines, c+" (after a restart)")
	}
	if out.Count == 0 && err == nil {
		out.Lines = append(out.Lines, "The file has the settings that are in force.")
	}
	return out, err
}
