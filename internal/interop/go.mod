module yagent/mcp/internal/interop

go 1.26.0

require yagent/mcp v0.0.0

require golang.org/x/sync v0.25.0 // indirect

replace yagent/mcp => ../..
