// The fault suite; a module of its own, so that the checker of histories never reaches those who use the
// library.
module github.com/valkeysync/valkeysync/chaos

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/stretchr/testify v1.12.1
	github.com/valkey-io/valkey-go v1.0.79
	github.com/valkeysync/valkeysync v0.0.0
	golang.org/x/sys v0.47.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

replace github.com/valkeysync/valkeysync => ../
