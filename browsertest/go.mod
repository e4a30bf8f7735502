// The page of `valkeysync ui` in a real browser; a module of its own, so that what steers the browser never reaches
// those who use the library.
module github.com/valkeysync/valkeysync/browsertest

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/stretchr/testify v1.12.1
	github.com/valkey-io/valkey-go v1.0.79
	github.com/valkeysync/valkeysync v0.0.0
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/valkeysync/valkeysync => ../
