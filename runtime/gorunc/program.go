package runc

import program "github.com/knarr-project/knarr/runtime/go-runc"

// The shim uses these parts of go-runc besides the client. They are go-runc's own.
type (
	CheckpointAction = program.CheckpointAction
	CheckpointOpts   = program.CheckpointOpts
	ConsoleSocket    = program.ConsoleSocket
	CreateOpts       = program.CreateOpts
	DeleteOpts       = program.DeleteOpts
	ExecOpts         = program.ExecOpts
	Exit             = program.Exit
	Format           = program.Format
	IO               = program.IO
	IOOpt            = program.IOOpt
	IOOption         = program.IOOption
	KillOpts         = program.KillOpts
	ProcessMonitor   = program.ProcessMonitor
	RestoreOpts      = program.RestoreOpts
	Socket           = program.Socket
	StartCloser      = program.StartCloser
)

// JSON is the format of runc's log.
const JSON = program.JSON

var (
	DefaultCommand       = program.DefaultCommand
	LeaveRunning         = program.LeaveRunning
	NewNullIO            = program.NewNullIO
	NewPipeIO            = program.NewPipeIO
	NewTempConsoleSocket = program.NewTempConsoleSocket
	ReadPidFile          = program.ReadPidFile
	WithExtraEnv         = program.WithExtraEnv
)
