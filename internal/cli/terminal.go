package cli

// What a terminal takes that does not say.
const (
	usualRows    = 24
	usualColumns = 80
)
