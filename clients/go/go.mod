module example.com/mainspring

go 1.21
