package config

import "example.org/mta/internal/settings"

// The kinds of values that know no mail.
type (
	Size     = settings.Size
	ByteRate = settings.ByteRate
	Rate     = settings.Rate
	Mode     = settings.Mode
	Secret   = settings.Secret
	Retry    = settings.Retry

	block = settings.Block // where a block and its settings stand in the file
)
